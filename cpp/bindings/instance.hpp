// Access to the C++ object inside a Python object of our classes.
#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

namespace py = pybind11;

// The T inside `object`, valid while the object lives; null for any other type. Reads the single
// value where pybind11 puts it (see instance in its detail/common.h), as none of our classes has a
// C++ base: a cast would search several tables, and query an attribute that objects of other
// classes lack, which costs an exception.
template <typename T>
T* find_instance(py::handle object) {
  static auto* const type = reinterpret_cast<PyTypeObject*>(py::type::of<T>().release().ptr());
  if (PyObject_TypeCheck(object.ptr(), type) == 0) return nullptr;
  const auto& made = *reinterpret_cast<const py::detail::instance*>(object.ptr());
  if (made.simple_layout && made.simple_value_holder[0] != nullptr) {
    return static_cast<T*>(made.simple_value_holder[0]);
  }
  py::detail::make_caster<T> caster;
  if (!caster.load(object, /*convert=*/false)) return nullptr;
  return &py::detail::cast_op<T&>(caster);
}

}  // namespace zerohop::bindings
