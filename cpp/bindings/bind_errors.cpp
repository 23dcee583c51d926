// C++ errors become the Python classes of zerohop.errors, with their code and effect.
#include <pybind11/pybind11.h>

#include <atomic>
#include <string_view>
#include <thread>

#include "base/error.hpp"
#include "base/wire_text.hpp"
#include "bindings/topics.hpp"

namespace zerohop::bindings {
namespace {

namespace py = pybind11;

// The thread that finalizes the interpreter, once it does.
std::atomic<std::thread::id> exiting_thread{};

bool on_a_thread_left_over() noexcept {
  const std::thread::id exiting = exiting_thread;
  return exiting != std::thread::id() && exiting != std::this_thread::get_id();
}

template <typename... More>
void raise(const char* class_name, const Error& error, More... more) {
  if (on_a_thread_left_over()) {
    // A daemon thread whose wait ended because of interpreter shutdown: suppress its traceback. No
    // Python code may run here: that could end the thread under our frames (gil.hpp).
    PyErr_SetNone(PyExc_SystemExit);
    return;
  }
  const py::object type = py::module_::import("zerohop.errors").attr(class_name);
  const py::object instance =
      type(error.what(), error.code(), effect_name(error.effect()), more...);
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
  } catch (const IntegrityError& error) {
    raise("IntegrityError", error, error.offset(), error.nbytes());
  } catch (const Error& error) {
    raise("Error", error);
  }
}

}  // namespace

void bind_errors(py::module_& m) {
  py::register_local_exception_translator(&translate);
  m.def(
      "wire_text",
      [](const py::bytes& bytes) {
        const std::string_view raw = bytes;
        return wire_text(raw, 4 * raw.size());  // an escape takes four bytes
      },
      py::arg("bytes"), "Text from another process as str, safe to display: see wire_text.hpp.");
  m.def(
      "announce_exit", [] { exiting_thread = std::this_thread::get_id(); },
      "From now on, errors silently end threads other than the calling one.");
}

}  // namespace zerohop::bindings
