// The memory of an Endpoint: registered, allocated, shared by name.
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>

#include "bindings/arguments.hpp"
#include "bindings/bind_endpoint.hpp"
#include "bindings/demands.hpp"
#include "bindings/torch_storage.hpp"

namespace zerohop::bindings {
namespace {

using engine::Endpoint;
using Name = Shown<py::str>;
using Word = std::optional<std::string>;

std::optional<engine::RegistrationDemand> parse_demand(const Word& word) {
  if (!word) return std::nullopt;
  return engine::parse_registration(*word);
}

py::dict registration_cache(const Endpoint& self) {
  const engine::RegionCache::Stats stats = self.gpu_registration_stats();
  using namespace py::literals;
  return py::dict("hits"_a = stats.hits, "misses"_a = stats.misses, "evictions"_a = stats.evictions,
                  "stale"_a = stats.stale, "entries"_a = stats.entries, "nbytes"_a = stats.nbytes,
                  "unused"_a = stats.unused, "unused_nbytes"_a = stats.unused_nbytes);
}

void share(Endpoint& self, Name text, Shown<engine::Memory> object) {
  const std::string name = demand_str(text.object, "a name");
  const engine::Memory& memory = demand_memory(object.object, "memory");
  if (name.empty()) throw py::value_error("the name of shared memory must not be empty");
  if (memory.endpoint() != self.address().id) {
    throw RegistrationError(
        "this memory is registered with another Endpoint: share it there, or register the array "
        "here");
  }
  self.share(name, memory);
}

}  // namespace

engine::Memory register_array(engine::Endpoint& endpoint, py::handle array,
                              std::optional<bool> writable, bool cache,
                              const std::optional<std::string>& registration) {
  drain_released();
  hold_storage(array);
  const auto demand = parse_demand(registration);
  ImportedArray imported = import_array(array);
  if (writable.value_or(false) && !imported.writable) {
    throw py::value_error(std::string("writable=True, but the array is read-only: ") +
                          imported.why_read_only);
  }
  const engine::Endpoint::Registering how{.writable = writable.value_or(imported.writable),
                                          .device = std::move(imported.device),
                                          .shared = cache,
                                          .demand = demand};
  return without_gil(
      [&] { return endpoint.register_memory(imported.layout, std::move(imported.owner), how); });
}

void bind_registered_memory(EndpointClass& type) {
  type.def_property_readonly("registration_cache", &registration_cache, R"(
Counters of the registrations of GPU memory, by name: ``hits`` and ``misses`` of look-ups, ``evictions`` of
unused ones for lack of room (knob ``registration_cache``), ``stale`` ones whose memory had been freed, and the
current ``entries`` and ``nbytes``, of which ``unused`` and ``unused_nbytes`` are not in use.)")
      .def("register", &register_array, py::arg("array"), py::kw_only(),
           py::arg("writable") = py::none(), py::arg("cache") = true,
           py::arg("registration") = py::none(), R"(
Register an array, without a copy: numpy, torch, jax, or anything with ``__dlpack__`` or the buffer protocol.

writable: whether peers may write it (default: if the array is writable).
cache: reuse a registration that covers the array; its key then reaches all that the registration covers. With
False the key reaches the array and nothing more.
registration: how GPU memory is registered: ``"dmabuf"``, ``"peermem"`` or ``"staged"`` (not with the device:
this Endpoint copies through pinned host memory); if that is not possible, RegistrationError states the reason.
Or ``"auto"``: the first that works (on soft0, which copies itself, also ``"staged"``). Default: the Endpoint's
``registration``. ``Memory.registration`` is the one used.
The first array registered (or allocated by empty()) on a GPU loads the kernels there and takes 2 MiB of its
memory.

Returns Memory, which keeps the array alive. The storage of a PyTorch CPU tensor can never be resized
afterwards; a RuntimeWarning reports if PyTorch cannot be kept from it. Raises RegistrationError, TypeError,
ValueError.)")
      .def(
          "empty",
          [](Endpoint& self, const py::object& shape, const py::object& dtype, Name device,
             const Word& registration) {
            const Dims dims = parse_shape(shape);
            const DType element = parse_dtype(dtype);
            const std::string place = demand_device(device.object);
            const auto demand = parse_demand(registration);
            return without_gil([&] { return self.empty(dims.span(), element, place, demand); });
          },
          py::arg("shape"), py::arg("dtype") = "uint8", py::arg("device") = "cpu", py::kw_only(),
          py::arg("registration") = py::none(), R"(
Fresh zeroed registered memory. shape: int or tuple. dtype: what numpy.dtype() takes ("float32", "f4", float,
numpy.float32), or a dtype of torch or ml_dtypes, or its name ("bfloat16", "float8_e4m3fn"). device: ``"cpu"``
or ``"cuda:<ordinal>"``, or a torch.device; GPU memory can be shared with other processes and, where the GPU
supports it, accessed by adapters (cuMemCreate), and is allocated in pages of 2 MiB:
``torch.from_dlpack(memory)`` or ``cupy.from_dlpack`` is its array. It lives as long as that array or the
Memory, and then until the GPU has finished its current work.
Do not drop it while a stream is being captured into a CUDA graph: like cudaFree, that invalidates the capture.
registration: of GPU memory, as for register().

Raises RegistrationError (no memory, no NVIDIA driver, a device that cannot reach it), CudaError (no such
GPU, no room on it), TransferTimeout (other work kept the GPU from zeroing it for the Endpoint's timeout),
TypeError and ValueError (shape, dtype, device).)")
      .def("share", &share, py::arg("name"), py::arg("memory"), R"(
Publish memory: peers find it by ``peer[name]`` and ``peer.lookup(name)``. Replaces any memory of that name.)")
      .def(
          "unshare",
          [](Endpoint& self, Name text) {
            const std::string name = demand_str(text.object, "a name");
            if (!self.unshare(name)) {
              throw py::key_error("nothing is shared under the name '" + name + "'");
            }
          },
          py::arg("name"), R"(
Stop publishing it; KeyError if nothing has that name. Peers that have its RemoteMemory keep the right: close
the Memory to end that.)");
}

}  // namespace zerohop::bindings
