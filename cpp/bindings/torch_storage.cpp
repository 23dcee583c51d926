#include "bindings/torch_storage.hpp"

#include <pybind11/gil_safe_call_once.h>

namespace zerohop::bindings {

namespace py = pybind11;

void hold_storage(py::handle array) {
  if (PyObject_CheckBuffer(array.ptr()) != 0) return;  // NumPy's and others: tensors have none
  if (!py::getattr(array, "is_cpu", py::none()).is(py::handle(Py_True))) return;
  if (!py::hasattr(array, "untyped_storage")) return;
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<py::object> hold;
  hold.call_once_and_store_result(
      [] { return py::module_::import("zerohop.torch_storage").attr("hold"); });
  hold.get_stored()(array);
}

}  // namespace zerohop::bindings
