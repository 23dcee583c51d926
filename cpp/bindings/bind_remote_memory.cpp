#include <pybind11/pybind11.h>

#include <functional>
#include <string>
#include <utility>

#include "base/reshape.hpp"
#include "base/view.hpp"
#include "bindings/arguments.hpp"
#include "bindings/convert.hpp"
#include "bindings/demands.hpp"
#include "bindings/topics.hpp"
#include "engine/memory/remote_memory.hpp"

namespace zerohop::bindings {
namespace {

using engine::RemoteMemory;

std::string access_name(const RemoteMemory& memory) {
  return (memory.access & engine::kRemoteWrite) != 0 ? "read-write" : "read-only";
}

py::bytes pack(const RemoteMemory& memory) { return to_bytes(memory.to_bytes()); }

RemoteMemory unpack(const py::bytes& bytes) { return RemoteMemory::from_bytes(as_bytes(bytes)); }

RemoteMemory reshape_remote(const RemoteMemory& memory, const py::args& shape) {
  RemoteMemory same = memory;
  same.layout = zerohop::reshape(memory.layout, parse_new_shape(shape).span());
  return same;
}

RemoteMemory view_remote(const RemoteMemory& memory, py::handle dtype) {
  RemoteMemory same = memory;
  same.layout = zerohop::view(memory.layout, parse_dtype(dtype));
  return same;
}

py::object refuse_as_array(const RemoteMemory&, const py::args&, const py::kwargs&) {
  throw py::type_error(
      "a RemoteMemory names memory of another process, whose bytes are not here: fetch them with "
      "peer.read(remote, array)");
}

std::string describe_remote(const RemoteMemory& memory) {
  return "<zerohop.RemoteMemory " + shape_string(memory.layout.shape.span()) + " " +
         memory.layout.dtype.name() + " on " + memory.device + " of endpoint " +
         engine::to_hex(memory.endpoint).substr(0, 8) + ", " + access_name(memory) + ">";
}

}  // namespace

void bind_remote_memory(py::module_& m) {
  py::class_<RemoteMemory> type(m, "RemoteMemory", R"(
Memory of another Endpoint and the right to use it: a plain value.

Comes from ``Memory.remote`` and travels as bytes (``to_bytes``), by pickle, or by name (``Endpoint.share`` and
``peer[name]``). It contains the key to the memory: send it only to peers that may use it. Slicing works as on
``Memory``. The key covers the whole registration that the array belongs to; ``Endpoint.register(array,
cache=False)`` makes one that covers the array alone.)");
  bind_layout_properties(type,
                         [](const RemoteMemory& memory) -> const Layout& { return memory.layout; });
  type.def_property_readonly(
          "device", [](const RemoteMemory& memory) { return memory.device; },
          "Its device: ``\"cpu\"`` or ``\"cuda:0\"``, as the owner counts.")
      .def_property_readonly(
          "address", [](const RemoteMemory& memory) { return memory.layout.address; },
          "Address of the first element in the owner's process.")
      .def_property_readonly("access", &access_name, "``\"read-write\"`` or ``\"read-only\"``.")
      .def_property_readonly(
          "endpoint_id", [](const RemoteMemory& memory) { return engine::to_hex(memory.endpoint); },
          "The ``id`` of the Endpoint that owns it.")
      .def("to_bytes", &pack)
      .def_static(
          "from_bytes",
          [](Shown<py::bytes> data) { return unpack(demand_bytes(data.object, "data")); },
          py::arg("data"), "Raises ProtocolError for bytes that are not a RemoteMemory's.")
      .def("__getitem__", [](const RemoteMemory& memory,
                             py::handle key) { return memory.slice(parse_index(key)); })
      .def("reshape", &reshape_remote,
           "The same memory in another shape, as in numpy; ValueError for memory with gaps.")
      .def("view", &view_remote, py::arg("dtype"),
           "The same bytes as elements of another dtype; ValueError as for ``Memory.view``.")
      .def("__len__", [](const RemoteMemory& memory) { return layout_length(memory.layout); })
      .def("__eq__",
           [](const RemoteMemory& memory, py::handle other) {
             return py::isinstance<RemoteMemory>(other) &&
                    memory == py::cast<const RemoteMemory&>(other);
           })
      .def("__hash__", [](const RemoteMemory& memory) { return py::hash(pack(memory)); })
      .def(py::pickle(&pack, &unpack))
      // Without it NumPy treats it as a sequence, and makes an array of objects.
      .def("__array__", &refuse_as_array)
      .def("__dlpack__", &refuse_as_array)
      .def("__dlpack_device__", &refuse_as_array)
      .def("__repr__", &describe_remote);
}

}  // namespace zerohop::bindings
