#include "bindings/half_made.hpp"

#include <cstddef>

namespace zerohop::bindings {
namespace {

namespace py = pybind11;

// Replaces the allocation.
void* refuse(std::size_t /*nbytes*/) {
  throw py::type_error("this object was never made: its __init__() has failed, or was not called");
}

bool is_bound(py::handle object) {
  return PyType_Check(object.ptr()) != 0 &&
         Py_TYPE(object.ptr()) == py::detail::get_internals().default_metaclass;
}

void refuse_in(py::handle scope) {
  for (const auto& item : scope.attr("__dict__").attr("items")()) {
    const auto member = py::reinterpret_borrow<py::tuple>(item)[1];
    if (is_bound(member)) {
      auto* type = reinterpret_cast<PyTypeObject*>(py::object(member).ptr());
      py::detail::get_type_info(type)->operator_new = &refuse;
      refuse_in(member);
    } else if (PyModule_Check(py::object(member).ptr()) != 0) {
      refuse_in(member);
    }
  }
}

}  // namespace

void refuse_half_made(py::module_& m) { refuse_in(m); }

}  // namespace zerohop::bindings
