#include "bindings/fast_method.hpp"

#include <cxxabi.h>

#include <vector>

namespace zerohop::bindings {
namespace {

PyObject* call_usual(PyObject* function, const Arguments& arguments) {
  std::vector<PyObject*> all{arguments.self};
  const Py_ssize_t count = arguments.count + arguments.named();
  all.insert(all.end(), arguments.given, arguments.given + count);
  const auto positional = static_cast<std::size_t>(arguments.count) + 1;
  return PyObject_Vectorcall(function, all.data(), positional, arguments.names);
}

}  // namespace

PyObject* call_guarded(FastMethod method, PyObject* usual, const Arguments& arguments) {
  try {
    PyObject* const result = method(arguments);
    if (result != nullptr || PyErr_Occurred() != nullptr) return result;
    return call_usual(usual, arguments);
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (abi::__forced_unwind&) {
    throw;  // the thread ends
  } catch (...) {
    py::detail::try_translate_exceptions();
  }
  return nullptr;
}

void set_method(py::handle type, PyMethodDef& definition) {
  auto* const of = reinterpret_cast<PyTypeObject*>(type.ptr());
  const auto method = py::reinterpret_steal<py::object>(PyDescr_NewMethod(of, &definition));
  if (!method) throw py::error_already_set();
  type.attr(definition.ml_name) = method;
}

}  // namespace zerohop::bindings
