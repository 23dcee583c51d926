// zerohop._core.ArrayView: an array as zerohop sees it, before it is registered. Shows the result
// of an import, and exports the same bytes again.
#include <pybind11/typing.h>

#include <utility>

#include "base/index.hpp"
#include "base/reshape.hpp"
#include "base/view.hpp"
#include "bindings/arguments.hpp"
#include "bindings/array_import.hpp"
#include "bindings/buffer_export.hpp"
#include "bindings/dlpack_export.hpp"
#include "bindings/topics.hpp"

namespace zerohop::bindings {
namespace {

ExportedArray exported(const ImportedArray& array) {
  return {array.layout, array.device, array.writable, array.owner};
}

using IntTuple = py::typing::Tuple<py::int_, py::ellipsis>;

IntTuple as_tuple(const Dims& dims) {
  py::tuple tuple(dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i) tuple[i] = dims[i];
  return tuple;
}

ImportedArray select_array(const ImportedArray& array, py::handle key) {
  ImportedArray part = array;
  part.layout = apply_index(array.layout, parse_index(key));
  return part;
}

ImportedArray reshape_array(const ImportedArray& array, const py::args& shape) {
  ImportedArray same = array;
  same.layout = zerohop::reshape(array.layout, parse_new_shape(shape).span());
  return same;
}

ImportedArray view_array(const ImportedArray& array, py::handle dtype) {
  ImportedArray same = array;
  same.layout = zerohop::view(array.layout, parse_dtype(dtype));
  return same;
}

std::string represent(const ImportedArray& array) {
  return "ArrayView(shape=" + shape_string(array.layout.shape.span()) + ", dtype='" +
         array.layout.dtype.name() + "', device='" + array.device + "', " +
         (array.writable ? "writable)" : std::string("read-only: ") + array.why_read_only + ")");
}

int get_array_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  return fill_or_raise(view, [&] {
    return fill_buffer(self, view, flags,
                       exported(py::cast<const ImportedArray&>(py::handle(self))));
  });
}

}  // namespace

void bind_array_view(py::module_& m) {
  py::class_<ImportedArray>(m, "ArrayView", py::custom_type_setup([](PyHeapTypeObject* type) {
                              add_buffer_protocol(type, get_array_buffer);
                            }),
                            "An array as zerohop sees it: where its elements lie, without a copy.")
      .def(py::init(&import_array), py::arg("array"))
      .def_property_readonly("shape",
                             [](const ImportedArray& a) { return as_tuple(a.layout.shape); })
      .def_property_readonly(
          "strides", [](const ImportedArray& a) { return as_tuple(a.layout.strides); },
          "Bytes from one element to the next, one value per dimension.")
      .def_property_readonly("dtype", [](const ImportedArray& a) { return a.layout.dtype.name(); })
      .def_property_readonly(
          "nbytes", [](const ImportedArray& a) { return a.layout.nbytes(); },
          "Bytes of all elements, without gaps.")
      .def_property_readonly("address", [](const ImportedArray& a) { return a.layout.address; })
      .def_property_readonly("contiguous",
                             [](const ImportedArray& a) { return a.layout.is_contiguous(); })
      .def_readonly("device", &ImportedArray::device)
      .def_readonly("writable", &ImportedArray::writable)
      .def_property_readonly(
          "why_read_only", [](const ImportedArray& a) { return std::string(a.why_read_only); },
          "The reason, or an empty string for a writable array.")
      .def("__getitem__", &select_array, py::arg("key"),
           "A part of the same bytes, as numpy indexes it.")
      .def("reshape", &reshape_array,
           "The same bytes in another shape; ValueError as for ``Memory.reshape``.")
      .def("view", &view_array, py::arg("dtype"),
           "The same bytes as elements of another dtype; ValueError as for ``Memory.view``.")
      .def("__repr__", &represent)
      .def(
          "__dlpack__",
          [](const ImportedArray& a, py::object stream, py::object max_version,
             py::object dl_device, py::object copy) {
            return to_dlpack(exported(a), {std::move(stream), std::move(max_version),
                                           std::move(dl_device), std::move(copy)});
          },
          py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
          py::arg("dl_device") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack_device__", [](const ImportedArray& a) { return dlpack_device(a.device); });
}

}  // namespace zerohop::bindings
