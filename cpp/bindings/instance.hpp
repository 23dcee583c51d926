// What a Python object is of our own classes.
#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

namespace py = pybind11;

// The T inside `object`, valid while the object lives; null if it is something else. It lies where
// pybind11 says that one value does (see instance in its detail/common.h), as no class of ours has
// a base in C++: a cast would look the class up in several tables, and ask objects of other classes
// for an attribute that they lack, which costs an exception.
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
