// What a Python object is of our own classes.
#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

namespace py = pybind11;

// The T inside `object`, valid while the object lives; null if it is something else. A cast alone
// asks objects of other classes for an attribute that they lack, which costs an exception.
template <typename T>
T* find_instance(py::handle object) {
  static auto* const type = reinterpret_cast<PyTypeObject*>(py::type::of<T>().release().ptr());
  if (PyObject_TypeCheck(object.ptr(), type) == 0) return nullptr;
  py::detail::make_caster<T> caster;
  if (!caster.load(object, /*convert=*/false)) return nullptr;
  return &py::detail::cast_op<T&>(caster);
}

}  // namespace zerohop::bindings
