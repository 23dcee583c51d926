// The calls that programs make most often, past pybind11's dispatcher: for every keyword that a
// function knows it makes a str, to look for it among those that are given, and that takes half of
// such a call. They are method descriptors (PyDescr_NewMethod), of which Python makes no bound
// method for each call.
#include "bindings/quick_transfers.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "bindings/bind_peer.hpp"
#include "bindings/instance.hpp"
#include "bindings/transfer_object.hpp"

namespace zerohop::bindings {
namespace {

constexpr std::array kKeywords{"notify", "stream", "require", "timeout"};
std::array<PyObject*, kKeywords.size()> keywords{};  // interned: known by their addresses

// pybind11's function, for arguments that the quick one does not take, or that are wrong.
template <auto call>
PyObject* usual_function = nullptr;

struct Arguments {
  PyObject* self;
  PyObject* const* given;  // as METH_FASTCALL | METH_KEYWORDS has them
  Py_ssize_t count;        // of those without a name
  PyObject* names;         // of the last ones; null: none

  Py_ssize_t named() const { return names == nullptr ? 0 : PyTuple_GET_SIZE(names); }
  PyObject* pass_on(PyObject* function) const {
    std::vector<PyObject*> all{self};
    all.insert(all.end(), given, given + count + named());
    return PyObject_Vectorcall(function, all.data(), static_cast<std::size_t>(count + 1), names);
  }
};

struct Given {
  const PeerHandle* peer = nullptr;
  py::handle source;
  py::handle destination;
  Extras extras;
};

// False: these arguments are for the usual function, or it has a word to say about them.
bool take(Given& given, const Arguments& arguments) {
  if (arguments.count != 2) return false;
  given.peer = find_instance<PeerHandle>(arguments.self);
  if (given.peer == nullptr) return false;
  given.source = arguments.given[0];
  given.destination = arguments.given[1];
  for (Py_ssize_t i = 0; i < arguments.named(); ++i) {
    const py::handle value = arguments.given[arguments.count + i];
    PyObject* name = PyTuple_GET_ITEM(arguments.names, i);
    const auto which = std::ranges::find(keywords, name) - keywords.begin();
    switch (which) {
      case 0: given.extras.notify = value; break;
      case 1: given.extras.stream = value; break;
      case 2: given.extras.require = {value}; break;
      case 3: given.extras.timeout = {demand_timeout(value)}; break;
      default: return false;
    }
  }
  return true;
}

// What `body` throws is raised in Python.
template <typename Body>
PyObject* guarded(Body body) {
  try {
    return body();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (abi::__forced_unwind&) {
    throw;  // the thread ends
  } catch (...) {
    py::detail::try_translate_exceptions();
  }
  return nullptr;
}

template <auto call>
PyObject* move_quickly(const Arguments& arguments) {
  Given given;
  if (!take(given, arguments)) return arguments.pass_on(usual_function<&move_quickly<call>>);
  return new_transfer(call(*given.peer, given.source, given.destination, given.extras));
}

// Without a timeout, or with that alone.
PyObject* wait_quickly(const Arguments& arguments) {
  const auto* handle = find_instance<TransferHandle>(arguments.self);
  if (handle == nullptr || arguments.count > 1 || arguments.names != nullptr) {
    return arguments.pass_on(usual_function<&wait_quickly>);
  }
  Timeout timeout;
  if (arguments.count > 0) timeout.seconds = demand_timeout(arguments.given[0]);
  return wait_transfer(*handle, timeout).release().ptr();
}

template <auto call>
PyObject* enter(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  return guarded([&] { return call(Arguments{self, given, count, names}); });
}

template <auto call>
void quicken(py::handle type, const char* name) {
  static const std::string documentation =
      type.attr(name).attr("__doc__").template cast<std::string>();
  static PyMethodDef definition{
      name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&enter<call>)),
      METH_FASTCALL | METH_KEYWORDS, documentation.c_str()};
  usual_function<call> = py::object(type.attr(name)).release().ptr();
  auto* of = reinterpret_cast<PyTypeObject*>(type.ptr());
  const auto descriptor = py::reinterpret_steal<py::object>(PyDescr_NewMethod(of, &definition));
  if (!descriptor) throw py::error_already_set();
  type.attr(name) = descriptor;
}

}  // namespace

void quicken_transfers(py::module_& m) {
  std::ranges::transform(kKeywords, keywords.begin(), PyUnicode_InternFromString);
  const py::object peer = m.attr("Peer");
  const py::object transfer = m.attr("Transfer");
  quicken_transfer_objects(transfer);
  quicken<&move_quickly<&write_one>>(peer, "write");
  quicken<&move_quickly<&read_one>>(peer, "read");
  quicken<&wait_quickly>(transfer, "wait");
}

}  // namespace zerohop::bindings
