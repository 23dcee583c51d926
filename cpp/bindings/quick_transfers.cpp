// The calls that programs make most often, past pybind11's dispatcher: for every keyword that a
// function knows it makes a str, to look for it among those that are given, and that takes half of
// such a call.
#include "bindings/quick_transfers.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <utility>

#include "bindings/bind_peer.hpp"

namespace zerohop::bindings {
namespace {

// As METH_FASTCALL | METH_KEYWORDS has it: names are those of the last arguments.
using Entry = PyObject* (*)(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                            PyObject* names);

Entry usual_entry = nullptr;          // one for all functions
std::array<PyObject*, 4> keywords{};  // interned, so that they are known by their addresses

struct Given {
  const PeerHandle* peer = nullptr;
  py::handle source;
  py::handle destination;
  Extras extras;
};

// False: these arguments are for the usual entry, or it has a word to say about them.
bool take(Given& given, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  if (count != 3) return false;
  py::detail::make_caster<PeerHandle> self;
  if (!self.load(arguments[0], /*convert=*/false)) return false;
  given.peer = &py::detail::cast_op<PeerHandle&>(self);
  given.source = arguments[1];
  given.destination = arguments[2];
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < named; ++i) {
    const py::handle value = arguments[count + i];
    const auto which = std::ranges::find(keywords, PyTuple_GET_ITEM(names, i)) - keywords.begin();
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
PyObject* enter(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  return guarded([=] {
    Given given;
    if (!take(given, arguments, count, names)) return usual_entry(self, arguments, count, names);
    auto transfer = call(*given.peer, given.source, given.destination, given.extras);
    return py::cast(std::move(transfer)).release().ptr();
  });
}

// Of a Transfer that is done well, as most are when they are waited for.
bool is_done_well(PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  if (count != 1 || names != nullptr) return false;
  py::detail::make_caster<TransferHandle> given;
  if (!given.load(arguments[0], /*convert=*/false)) return false;
  const auto& handle = py::detail::cast_op<TransferHandle&>(given);
  const engine::Transfer& transfer = *handle.transfer;
  return handle.kind == ResultKind::none && transfer.done() && !transfer.failed();
}

PyObject* enter_wait(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                     PyObject* names) {
  return guarded([=]() -> PyObject* {
    if (is_done_well(arguments, count, names)) Py_RETURN_NONE;
    return usual_entry(self, arguments, count, names);
  });
}

void take_entry(py::handle type, const char* name, Entry entry) {
  PyObject* function = py::object(type.attr("__dict__")[name]).ptr();  // which the type keeps alive
  if (PyInstanceMethod_Check(function)) function = PyInstanceMethod_GET_FUNCTION(function);
  PyMethodDef* definition = reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  if (definition->ml_flags != (METH_FASTCALL | METH_KEYWORDS))
    return;  // pybind11 has another entry
  usual_entry = reinterpret_cast<Entry>(reinterpret_cast<void (*)()>(definition->ml_meth));
  definition->ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry));
}

}  // namespace

void quicken_transfers(py::module_& m) {
  constexpr std::array names{"notify", "stream", "require", "timeout"};
  std::ranges::transform(names, keywords.begin(), PyUnicode_InternFromString);
  const py::object peer = m.attr("Peer");
  take_entry(peer, "write", &enter<&write_one>);
  take_entry(peer, "read", &enter<&read_one>);
  take_entry(m.attr("Transfer"), "wait", &enter_wait);
}

}  // namespace zerohop::bindings
