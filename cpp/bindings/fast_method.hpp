// The most frequently called methods, without pybind11's dispatcher: it creates a str for every
// keyword that a function knows, to look it up among the given ones, which takes half of such a
// call. They are method descriptors (PyDescr_NewMethod), for which Python creates no bound method
// per call.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace zerohop::bindings {

namespace py = pybind11;

// The arguments of a METH_FASTCALL | METH_KEYWORDS method.
struct Arguments {
  PyObject* self;
  PyObject* const* given;
  Py_ssize_t count;  // positional arguments, which come first
  PyObject* names;   // of the keyword arguments; null: none

  Py_ssize_t named() const { return names == nullptr ? 0 : PyTuple_GET_SIZE(names); }
};

// Null, without an exception: arguments unsuitable or wrong. Otherwise as usual in Python.
using FastMethod = PyObject* (*)(const Arguments&);

// Returns what the method returns or throws; if it declines, calls `usual`, the replaced function.
PyObject* call_guarded(FastMethod method, PyObject* usual, const Arguments& arguments);

void set_method(py::handle type, PyMethodDef& definition);

// Replaces that method of the class by `method`, once. Call after explain_refusals(), which would
// not find it any more. WeakMethod and inspect.ismethod() do not recognize descriptors.
template <FastMethod method>
void make_fast(py::handle type, const char* name) {
  static PyObject* const usual = py::object(type.attr(name)).release().ptr();
  static const auto documentation = type.attr(name).attr("__doc__").template cast<std::string>();
  constexpr auto enter = [](PyObject* self, PyObject* const* given, Py_ssize_t count,
                            PyObject* names) -> PyObject* {
    return call_guarded(method, usual, {self, given, count, names});
  };
  using Enter = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
  static PyMethodDef definition{
      name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(static_cast<Enter>(enter))),
      METH_FASTCALL | METH_KEYWORDS, documentation.c_str()};
  set_method(type, definition);
}

}  // namespace zerohop::bindings
