#include "bindings/refusals.hpp"

#include <string>

namespace zerohop::bindings {
namespace {

namespace py = pybind11;

// As for METH_FASTCALL | METH_KEYWORDS: names are those of the last arguments.
using Entry = PyObject* (*)(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                            PyObject* names);

Entry pybind11_entry = nullptr;  // one for all functions

// Replaces the current error, if it is pybind11's.
void explain(PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  py::error_already_set error;
  const auto text = py::str(error.value()).cast<std::string>();
  if (text.find("(): incompatible ") == std::string::npos) return error.restore();
  const auto positional = static_cast<std::size_t>(count);
  py::tuple values(positional);
  for (std::size_t i = 0; i < positional; ++i) values[i] = py::handle(arguments[i]);
  py::dict named;
  if (names != nullptr) {
    std::size_t next = positional;
    for (const py::handle name : py::reinterpret_borrow<py::tuple>(names)) {
      named[name] = py::handle(arguments[next++]);
    }
  }
  const py::object sentence =
      py::module_::import("zerohop.calls").attr("explain")(text, values, named);
  PyErr_SetObject(PyExc_TypeError, sentence.ptr());
}

PyObject* enter_refusing(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                         PyObject* names) {
  PyObject* result = pybind11_entry(self, arguments, count, names);
  if (result == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
    try {
      explain(arguments, count, names);
    } catch (py::error_already_set& error) {
      error.restore();
    }
  }
  return result;
}

void take_entry(py::handle callable) {
  PyObject* function = callable.ptr();
  if (PyInstanceMethod_Check(function)) function = PyInstanceMethod_GET_FUNCTION(function);
  if (!PyCFunction_Check(function)) return;
  PyMethodDef* definition = reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  constexpr int kFlags = METH_FASTCALL | METH_KEYWORDS;
  if (definition->ml_flags != kFlags) return;  // pybind11 3.0 has another entry
  const auto found = reinterpret_cast<Entry>(reinterpret_cast<void (*)()>(definition->ml_meth));
  if (pybind11_entry == nullptr) pybind11_entry = found;
  if (found != pybind11_entry) return;  // not created by pybind11
  definition->ml_meth =
      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&enter_refusing));
}

void take_entries(py::handle scope) {
  for (const auto& item : scope.attr("__dict__").attr("items")()) {
    const auto member = py::reinterpret_borrow<py::tuple>(item)[1];
    if (PyType_Check(member.ptr())) {
      take_entries(member);
    } else {
      // A static method wraps its function.
      take_entry(py::getattr(member, "__func__", member));
    }
  }
}

}  // namespace

void explain_refusals(py::module_& m) { take_entries(m); }

}  // namespace zerohop::bindings
