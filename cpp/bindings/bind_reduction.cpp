// Reductions of host arrays.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "bindings/handles.hpp"
#include "bindings/topics.hpp"
#include "engine/collective/reduction.hpp"

namespace zerohop::bindings {
namespace {

using engine::collective::kOpNames;
using engine::collective::Op;

// A contiguous buffer of a Python object.
class Bytes {
 public:
  Bytes(py::handle object, bool writable) {
    const int flags = writable ? PyBUF_CONTIG : PyBUF_CONTIG_RO;
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw py::error_already_set();
  }
  ~Bytes() { PyBuffer_Release(&view_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  std::byte* begin() const noexcept { return static_cast<std::byte*>(view_.buf); }
  std::size_t nbytes() const noexcept { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

Op op_of(std::size_t number) {
  if (number == 0 || number >= kOpNames.size()) throw py::value_error("there is no such operation");
  return static_cast<Op>(number);
}

void reduce(std::size_t op, const std::string& dtype, double factor, py::handle out,
            const py::list& in) {
  const engine::collective::Reduction reduction{
      .op = op_of(op), .dtype = DType::parse(dtype), .factor = factor};
  const Bytes target(out, /*writable=*/true);
  std::vector<std::unique_ptr<Bytes>> sources;
  std::vector<const std::byte*> begins;
  for (const py::handle each : in) {
    sources.push_back(std::make_unique<Bytes>(each, /*writable=*/false));
    begins.push_back(sources.back()->begin());
    if (sources.back()->nbytes() != target.nbytes()) {
      throw py::value_error("a reduction needs arrays of one size");
    }
  }
  const std::uint64_t count = target.nbytes() / reduction.dtype.itemsize();
  without_gil([&] { engine::collective::reduce(reduction, target.begin(), begins, count); });
}

}  // namespace

void bind_reduction(py::module_& m) {
  py::list names;
  for (const std::string_view name : kOpNames) names.append(py::str(name.data(), name.size()));
  m.attr("OPS") = py::tuple(names);
  m.def("reduce", &reduce, py::arg("op"), py::arg("dtype"), py::arg("factor"), py::arg("out"),
        py::arg("inputs"), R"(
Reduces host arrays of one size, element by element and in that order, into `out`, which may be one of them. op:
its place in OPS. factor: of premul_sum. Raises ValueError.)");
  m.def(
      "why_no_reduction",
      [](std::size_t op, const std::string& dtype) {
        return engine::collective::why_no_reduction(op_of(op), DType::parse(dtype));
      },
      py::arg("op"), py::arg("dtype"), "\"\": the operation exists for that type.");
}

}  // namespace zerohop::bindings
