// C++ errors become the Python classes of zerohop.errors, with their code and effect.
#include <pybind11/pybind11.h>

#include <atomic>

#include "base/error.hpp"
#include "bindings/topics.hpp"

namespace zerohop::bindings {
namespace {

namespace py = pybind11;

std::atomic<bool> exiting{false};

bool in_main_thread() {
  const auto threading = py::module_::import("threading");
  return threading.attr("current_thread")().is(threading.attr("main_thread")());
}

void raise(const char* class_name, const Error& error) {
  if (exiting && !in_main_thread()) {
    // A daemon thread whose wait ended because the interpreter did: nobody wants its traceback.
    PyErr_SetNone(PyExc_SystemExit);
    return;
  }
  const py::object type = py::module_::import("zerohop.errors").attr(class_name);
  const py::object instance = type(error.what(), error.code(), effect_name(error.effect()));
  PyErr_SetObject(type.ptr(), instance.ptr());
}

void translate(std::exception_ptr pending) {
  try {
    if (pending) std::rethrow_exception(pending);
  } catch (const VerbsError& error) {
    raise("VerbsError", error);
  } catch (const CudaError& error) {
    raise("CudaError", error);
  } catch (const PeerLost& error) {
    raise("PeerLost", error);
  } catch (const TransferTimeout& error) {
    raise("TransferTimeout", error);
  } catch (const RegistrationError& error) {
    raise("RegistrationError", error);
  } catch (const RouteUnavailable& error) {
    raise("RouteUnavailable", error);
  } catch (const ProtocolError& error) {
    raise("ProtocolError", error);
  } catch (const AuthenticationError& error) {
    raise("AuthenticationError", error);
  } catch (const Error& error) {
    raise("Error", error);
  }
}

}  // namespace

void bind_errors(py::module_& m) {
  py::register_local_exception_translator(&translate);
  m.def(
      "announce_exit", [] { exiting = true; },
      "From now on errors end threads other than the main one quietly.");
}

}  // namespace zerohop::bindings
