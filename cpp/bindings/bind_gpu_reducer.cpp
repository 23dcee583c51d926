// Reductions of arrays in a GPU's memory.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/gpu_reducer.hpp"
#include "bindings/topics.hpp"
#include "engine/collective/combiner.hpp"

namespace zerohop::bindings {
namespace {

using engine::collective::GpuCombiner;
using engine::collective::Op;

const std::byte* at(std::uint64_t address) { return reinterpret_cast<const std::byte*>(address); }

GpuReducerHandle make_reducer(const EndpointHandle& endpoint, const engine::Memory& memory) {
  return {endpoint, without_gil([&] {
            const auto registration = memory.registration();
            if (!registration->device) throw py::value_error("the memory is not of a GPU");
            return std::make_shared<gpu::Reducer>(registration->device);
          })};
}

void reduce(const GpuReducerHandle& self, std::uint8_t op, const std::string& dtype, double factor,
            std::uint64_t out, std::uint64_t nbytes, const std::vector<std::uint64_t>& inputs,
            double timeout) {
  const engine::collective::Reduction reduction{static_cast<Op>(op), DType::parse(dtype), factor};
  std::vector<const std::byte*> in;
  for (const std::uint64_t input : inputs) in.push_back(at(input));
  waiting(*self.endpoint, timeout, [&](const Deadline& deadline) {
    GpuCombiner by(self.reducer, deadline);
    by.begin(reduction, const_cast<std::byte*>(at(out)), in, nbytes / reduction.dtype.itemsize());
    by.finish();
  });
}

}  // namespace

void bind_gpu_reducer(py::module_& m) {
  py::class_<GpuReducerHandle>(m, "GpuReducer", R"(
Reduces arrays in the memory of one GPU: of that Memory. One thread at a time. Raises RouteUnavailable (built without kernels),
CudaError.)")
      .def(py::init(&make_reducer), py::arg("endpoint"), py::arg("memory"))
      .def("reduce", &reduce, py::arg("op"), py::arg("dtype"), py::arg("factor"), py::arg("out"),
           py::arg("nbytes"), py::arg("inputs"), py::arg("timeout"), R"(
As _core.reduce(), of arrays given by their addresses, up to INPUTS; waits for the result. Raises CudaError, TransferTimeout.)")
      .attr("INPUTS") = gpu::kReduceInputs;
}

}  // namespace zerohop::bindings
