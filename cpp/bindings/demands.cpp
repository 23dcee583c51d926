#include "bindings/demands.hpp"

#include <cmath>
#include <limits>
#include <string_view>

#include "bindings/dlpack.hpp"
#include "bindings/handles.hpp"
#include "bindings/instance.hpp"
#include "engine/memory/grant.hpp"
#include "engine/notify/board.hpp"

namespace zerohop::bindings {
namespace {

using engine::Memory;
using engine::RemoteMemory;

[[noreturn]] void refuse(const char* what, const char* wanted, py::handle object,
                         const char* remedy = "") {
  throw py::type_error(std::string(what) + " must be " + wanted + ", not " + type_name(object) +
                       remedy);
}

// A Python int or NumPy integer. A bool is an int too, but surely a mistake.
py::object demand_int(py::handle object, const char* what) {
  if (PyBool_Check(object.ptr()) || !PyIndex_Check(object.ptr())) refuse(what, "an int", object);
  if (PyLong_CheckExact(object.ptr())) return py::reinterpret_borrow<py::object>(object);
  auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!number) throw py::error_already_set();
  return number;
}

// nullopt: out of range.
std::optional<std::int64_t> small_int(py::handle object, const char* what) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(demand_int(object, what).ptr(), &overflow);
  return overflow != 0 ? std::nullopt : std::optional<std::int64_t>(number);
}

const char* remedy_for_remote(py::handle object, py::handle local) {
  if (local && find_remote(local) != nullptr) {
    return ": the two are swapped, write(local, remote) and read(remote, local)";
  }
  if (find_memory(object) != nullptr) return ": pass its .remote";
  if (PyUnicode_Check(object.ptr())) return ": look the name up, peer[name]";
  return ": it comes from Memory.remote, or from peer[name]";
}

}  // namespace

std::string type_name(py::handle object) {
  const std::string_view full = Py_TYPE(object.ptr())->tp_name;
  return std::string(full.substr(full.rfind('.') + 1));  // npos + 1 is 0
}

std::string a_type_name(py::handle object) {
  const std::string name = type_name(object);
  const bool vowel = std::string_view("aeioAEIO").find(name[0]) != std::string_view::npos;
  return (vowel ? "an " : "a ") + name;
}

std::optional<double> demand_timeout(py::handle object) {
  if (object.is_none()) return std::nullopt;
  constexpr const char* kWhat = "timeout";
  constexpr const char* kWanted = "a number of seconds, or None";
  if (PyBool_Check(object.ptr()) || !PyNumber_Check(object.ptr())) refuse(kWhat, kWanted, object);
  const double seconds = PyFloat_AsDouble(object.ptr());
  if (seconds == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse(kWhat, kWanted, object);
  }
  if (std::isnan(seconds) || seconds < 0) {
    throw py::value_error("timeout must be a number of seconds >= 0, not " +
                          py::str(object).cast<std::string>());
  }
  return seconds;
}

std::string demand_str(py::handle object, const char* what) {
  if (!PyUnicode_Check(object.ptr())) refuse(what, "a str", object);
  Py_ssize_t nbytes = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &nbytes);
  if (text == nullptr) throw py::error_already_set();  // half a surrogate pair
  return {text, static_cast<std::size_t>(nbytes)};
}

std::string demand_device(py::handle object) {
  const py::object text = type_name(object) == "device"
                              ? py::object(py::str(object))
                              : py::reinterpret_borrow<py::object>(object);
  return device_name(parse_device(demand_str(text, "a device")));
}

std::string demand_route(py::handle object) {
  return object.is_none() ? std::string() : demand_str(object, "require");
}

const Memory& demand_memory(py::handle object, const char* what) {
  if (const Memory* memory = find_memory(object)) return *memory;
  if (find_remote(object)) refuse(what, "a Memory", object, ", which is another Endpoint's");
  const bool grant = py::isinstance<engine::Grant>(object);
  refuse(what, "a Memory", object,
         grant ? ": send its .remote to the peer, for example by pickle"
               : ": register the array first");
}

const RemoteMemory* find_remote(py::handle object) { return find_instance<RemoteMemory>(object); }

const RemoteMemory& demand_remote(py::handle object, const char* what, py::handle local) {
  if (const RemoteMemory* remote = find_remote(object)) return *remote;
  refuse(what, "a RemoteMemory", object, remedy_for_remote(object, local));
}

std::uint32_t demand_u32(py::handle object, const char* what, const char* range) {
  const auto number = small_int(object, what);
  if (!number || *number < 0 || *number > std::numeric_limits<std::uint32_t>::max()) {
    throw py::value_error(std::string(what) + " must be " + range + ", not " +
                          py::str(object).cast<std::string>());
  }
  return static_cast<std::uint32_t>(*number);
}

engine::Notification demand_notification(py::handle slot, py::handle value) {
  constexpr const char* kRange = "from 1 to 2**32 - 1 (0 means an empty slot)";
  return {demand_slot(slot), demand_u32(value, "a notification value", kRange)};
}

namespace {

// PyTorch's, looked up with each transfer; null: the object has no such attribute.
py::object torch_handle(py::handle object) {
  static PyObject* const name = PyUnicode_InternFromString("cuda_stream");
  auto handle = py::reinterpret_steal<py::object>(PyObject_GetAttr(object.ptr(), name));
  if (handle) return handle;
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw py::error_already_set();
  PyErr_Clear();
  return handle;
}

// The handle inside a stream object; returns any other object unchanged.
py::object stream_handle(py::handle object) {
  if (PyLong_Check(object.ptr())) return py::reinterpret_borrow<py::object>(object);
  if (py::object handle = torch_handle(object)) return handle;
  if (py::hasattr(object, "__cuda_stream__")) {  // (version, handle): cuda-python's protocol
    const py::object both = object.attr("__cuda_stream__")();
    return py::reinterpret_borrow<py::sequence>(both)[1];
  }
  if (py::hasattr(object, "ptr")) return object.attr("ptr");  // CuPy
  if (!py::hasattr(object, "handle")) return py::reinterpret_borrow<py::object>(object);
  const py::object handle = object.attr("handle");  // Numba: a ctypes pointer
  if (!py::hasattr(handle, "value")) return handle;
  const py::object value = handle.attr("value");
  return value.is_none() ? py::int_(0) : value;
}

}  // namespace

std::optional<driver::CudaStream> demand_stream(py::handle object) {
  if (object.is_none()) return std::nullopt;
  const py::object handle = stream_handle(object);
  if (!PyLong_Check(handle.ptr()) || PyBool_Check(handle.ptr())) {
    throw py::type_error(
        "stream must be a GPU stream of PyTorch, CuPy or Numba, an object with __cuda_stream__, or "
        "the handle of one as an int, not " +
        a_type_name(object));
  }
  const unsigned long long number = PyLong_AsUnsignedLongLong(handle.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw py::value_error("stream is not the handle of a stream: " +
                          py::str(handle).cast<std::string>());
  }
  return reinterpret_cast<driver::CudaStream>(number);
}

std::uint32_t demand_slot(py::handle object) {
  const auto number = small_int(object, "a notification slot");
  if (!number || *number < 0 || *number >= engine::Board::kSlots) {
    throw py::index_error("notification slot " + py::str(object).cast<std::string>() +
                          " is out of range: slots go from 0 to " +
                          std::to_string(engine::Board::kSlots - 1));
  }
  return static_cast<std::uint32_t>(*number);
}

std::uint64_t demand_word(py::handle object, const char* what) {
  const py::object number = demand_int(object, what);
  int overflow = 0;
  const long long word = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow == 0) return static_cast<std::uint64_t>(word);
  const unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(number.ptr()) : 0;
  if (overflow < 0 || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw py::value_error(std::string(what) + " must fit 64 bits");
  }
  return large;
}

py::bytes demand_bytes(py::handle object, const char* what) {
  if (!PyObject_CheckBuffer(object.ptr())) refuse(what, "bytes", object);
  auto bytes = py::reinterpret_steal<py::bytes>(PyBytes_FromObject(object.ptr()));
  if (!bytes) throw py::error_already_set();
  return bytes;
}

}  // namespace zerohop::bindings
