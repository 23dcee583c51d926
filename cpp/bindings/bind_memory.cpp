#include <pybind11/pybind11.h>

#include <utility>

#include "bindings/arguments.hpp"
#include "bindings/array_import.hpp"
#include "bindings/buffer_export.hpp"
#include "bindings/convert.hpp"
#include "bindings/dlpack_export.hpp"
#include "bindings/gil.hpp"
#include "bindings/handles.hpp"
#include "bindings/topics.hpp"
#include "engine/memory/memory.hpp"
#include "gpu/default_stream.hpp"

namespace zerohop::bindings {
namespace {

using engine::Memory;

constexpr Deadline::Seconds kStreamPatience{30.0};

ExportedArray exported(const Memory& memory) {
  // Only the owner of the bytes: a view must not keep the registration that close() ends.
  return {memory.layout(), memory.device(), memory.writable(), memory.registration()->owner};
}

int get_memory_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  return fill_or_raise(view, [&] {
    const auto& memory = py::cast<const Memory&>(py::handle(self));
    const DType dtype = memory.layout().dtype;
    if ((flags & PyBUF_FORMAT) != 0 && !has_buffer_format(dtype)) {
      // A consumer that took the bits for integers would compute with them.
      throw py::buffer_error("the buffer protocol has no " + dtype.name() +
                             ": use torch.from_dlpack");
    }
    return fill_buffer(self, view, flags, exported(memory));
  });
}

void support_buffers(PyHeapTypeObject* type) { add_buffer_protocol(type, &get_memory_buffer); }

// As transfers do: the consumer sees all work submitted to the default stream, whatever stream it
// uses itself.
void wait_for_producers(const Memory& memory) {
  const Deadline deadline = Deadline::after(kStreamPatience);
  const auto device = memory.registration()->device;
  if (without_gil([&] { return gpu::wait_default_stream(*device, deadline); })) return;
  throw TransferTimeout("the default stream of " + memory.device() +
                        " did not finish in time: wait for its work, or pass stream=-1");
}

py::capsule dlpack(const Memory& memory, py::object stream, py::object max_version,
                   py::object dl_device, py::object copy) {
  if (!memory.on_host() && !stream.equal(py::int_(-1))) wait_for_producers(memory);
  return to_dlpack(exported(memory), {.stream = std::move(stream),
                                      .max_version = std::move(max_version),
                                      .dl_device = std::move(dl_device),
                                      .copy = std::move(copy)});
}

const char* registration(const Memory& memory) {
  return memory.on_host() ? "host" : engine::way_name(memory.choice()->way);
}

// numpy.asarray() calls this when the buffer protocol refuses.
py::object to_numpy(const Memory& memory, const py::object& dtype, const py::object& copy) {
  const ExportedArray array = exported(memory);
  const py::object view = py::cast(ImportedArray{.layout = array.layout,
                                                 .writable = array.writable,
                                                 .device = array.device,
                                                 .owner = array.owner});
  return py::module_::import("zerohop.arrays")
      .attr("to_numpy")(view, array.layout.dtype.name(), dtype, copy);
}

Memory select_memory(const Memory& memory, py::handle key) {
  (void)memory.registration();  // throws for closed memory
  return memory.slice(parse_index(key));
}

Memory reshape_memory(const Memory& memory, const py::args& shape) {
  (void)memory.registration();  // throws for closed memory
  return memory.reshape(parse_new_shape(shape).span());
}

Memory view_memory(const Memory& memory, py::handle dtype) {
  (void)memory.registration();  // throws for closed memory
  return memory.view(parse_dtype(dtype));
}

std::string describe_memory(const Memory& memory) {
  return "<zerohop.Memory " + shape_string(memory.layout().shape.span()) + " " +
         memory.layout().dtype.name() + " on " + memory.device() +
         (memory.writable() ? "" : ", read-only") + (memory.closed() ? ", closed" : "") + ">";
}

}  // namespace

void bind_memory(py::module_& m) {
  py::class_<Memory> type(m, "Memory", py::custom_type_setup(&support_buffers), R"(
A registered array: peers that have its ``remote`` can read and write its bytes.

Made by ``Endpoint.register`` and ``Endpoint.empty``. Keeps the array alive. Slicing with integers, slices,
``...`` and ``None`` gives a part of the same memory, as in numpy's basic indexing. ``numpy.asarray(m)``,
``numpy.from_dlpack(m)`` and ``torch.from_dlpack(m)`` share its bytes; for GPU memory ``torch.from_dlpack(m)``
and ``cupy.from_dlpack(m)``.)");
  bind_layout_properties(type,
                         [](const Memory& memory) -> const Layout& { return memory.layout(); });
  type.def_property_readonly("device", &Memory::device,
                             "Its device: ``\"cpu\"`` or ``\"cuda:0\"``.")
      .def_property_readonly("registration", &registration, R"(
How it is registered: ``"host"``; for GPU memory ``"dmabuf"``, ``"peermem"`` or ``"staged"`` (through pinned
host memory). ``peer.route(...)`` gives the reason.)")
      .def_property_readonly("writable", &Memory::writable, "Whether peers may write it.")
      .def_property_readonly("closed", &Memory::closed, "Whether it is no longer registered.")
      .def_property_readonly(
          "address", [](const Memory& memory) { return memory.layout().address; },
          "Address of the first element in this process.")
      .def_property_readonly(
          "contiguous", [](const Memory& memory) { return memory.layout().is_contiguous(); },
          "Whether the elements lie in C order without gaps.")
      .def_property_readonly("remote", &Memory::remote, R"(
The ``RemoteMemory`` to send to a peer: its holder may read this memory, and write it if it is writable. Raises
RegistrationError once closed.)")
      .def("__getitem__", &select_memory,
           "A part of the same memory. Raises RegistrationError once closed.")
      .def(
          "__setitem__",
          [](const Memory&, py::handle, py::handle) {
            throw py::type_error(
                "a Memory takes no values by item: assign to its array, numpy.asarray(memory)[...] "
                "= 1, or torch.from_dlpack(memory)[...] = 1 for memory of a GPU");
          },
          "TypeError: assign to the array, ``numpy.asarray(m)[0] = 1``.")
      .def(
          "__reduce__",
          [](const Memory&) -> py::tuple {
            throw py::type_error(
                "a Memory stays in its process: send memory.remote to a peer, or a copy of its "
                "array, numpy.array(memory)");
          },
          "TypeError: it stays in its process; send ``m.remote``.")
      .def("reshape", &reshape_memory, R"(
The same memory in another shape, as in numpy: ``m.reshape(2, 3)``, ``m.reshape((2, -1))``. ValueError for
memory with gaps, which would have to be copied. Raises RegistrationError once closed.)")
      .def("view", &view_memory, py::arg("dtype"), R"(
The same bytes as elements of another dtype (any that ``Endpoint.empty`` takes): ``m.view("float32")``. A
different item size scales the last axis, which must then have no gaps. ValueError names the obstacle: gaps, or
a last axis, an address or strides that the new item size does not divide. Raises RegistrationError once
closed.)")
      .def("__array__", &to_numpy, py::arg("dtype") = py::none(), py::arg("copy") = py::none(), R"(
The bytes as a numpy array. bfloat16 and float8 need the package ml_dtypes, else TypeError. Raises
RegistrationError once closed.)")
      .def("close", &Memory::close, py::call_guard<GilReleased>(), R"(
End the registration: peers can no longer access the memory. Running transfers finish first. Also closes the
slices of this memory. Calling it again does nothing.)")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__",
           [](Memory& memory, const py::args&) { without_gil([&] { memory.close(); }); })
      .def("__len__", [](const Memory& memory) { return layout_length(memory.layout()); })
      .def("__dlpack__", &dlpack, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(),
           py::arg("copy") = py::none(), R"(
The bytes as a DLPack capsule (array API 2024.12). For GPU memory: waits at most 30 s until the default stream
has finished its current work, unless stream=-1.)")
      .def("__dlpack_device__", [](const Memory& memory) { return dlpack_device(memory.device()); })
      .def("__repr__", &describe_memory);
}

}  // namespace zerohop::bindings
