// Methods that programs call most often, past pybind11's dispatcher: for every keyword that a
// function knows it makes a str, to look for it among those that are given, and that takes half of
// such a call. They are method descriptors (PyDescr_NewMethod), of which Python makes no bound
// method for each call.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace zerohop::bindings {

namespace py = pybind11;

// What a method is given, as METH_FASTCALL | METH_KEYWORDS has it.
struct Arguments {
  PyObject* self;
  PyObject* const* given;
  Py_ssize_t count;  // of those without a name, which come first
  PyObject* names;   // of the others; null: there are none

  Py_ssize_t named() const { return names == nullptr ? 0 : PyTuple_GET_SIZE(names); }
};

// Null, without an exception: these arguments are not its own, or are wrong. Else as Python has it.
using FastMethod = PyObject* (*)(const Arguments&);

// What the method returns or throws, or else what `usual`, the function in whose place it is, does.
PyObject* call_guarded(FastMethod method, PyObject* usual, const Arguments& arguments);

void set_method(py::handle type, PyMethodDef& definition);

// Puts `method` in the place of that method of the class, once. Behind explain_refusals(), which
// does not find it any more. WeakMethod and inspect.ismethod() know no descriptors.
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
