#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arguments.hpp"
#include "bindings/convert.hpp"
#include "bindings/demands.hpp"
#include "bindings/dlpack.hpp"
#include "bindings/dropped_sends.hpp"
#include "bindings/handles.hpp"
#include "bindings/knobs.hpp"
#include "bindings/topics.hpp"
#include "engine/device_choice.hpp"

namespace zerohop::bindings {
namespace {

using Word = std::optional<std::string>;

std::optional<engine::RegistrationDemand> parse_demand(const Word& word) {
  if (!word) return std::nullopt;
  return engine::parse_registration(*word);
}

}  // namespace

engine::Memory register_array(engine::Endpoint& endpoint, py::handle array,
                              std::optional<bool> writable, bool cache,
                              const std::optional<std::string>& registration) {
  drain_released();
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

const engine::Memory* find_memory(py::handle object) {
  // One look-up of the type, where isinstance and cast take one each.
  py::detail::make_caster<engine::Memory> caster;
  if (object.is_none() || !caster.load(object, /*convert=*/false)) return nullptr;
  return &py::detail::cast_op<engine::Memory&>(caster);
}

LocalArray::LocalArray(engine::Endpoint& endpoint, py::handle object)
    : found_(find_memory(object)) {
  if (found_ == nullptr) {
    if (find_remote(object) != nullptr) {
      throw py::type_error(
          "a Memory or an array of this process is needed here, not a RemoteMemory: write() takes "
          "(local, remote), read() takes (remote, local)");
    }
    registered_ = register_array(endpoint, object, std::nullopt, /*cache=*/true);
  }
}

std::shared_ptr<PeerHandle> face_of(const EndpointHandle& endpoint,
                                    const std::shared_ptr<engine::Peer>& peer) {
  auto face = std::static_pointer_cast<PeerHandle>(peer->face.lock());
  if (!face) {
    face = std::make_shared<PeerHandle>(PeerHandle{endpoint, peer});
    peer->face = face;
  }
  return face;
}

std::string waited(double seconds) {
  char text[40];
  std::snprintf(text, sizeof text, " (waited %.3g s)", seconds);
  return text;
}

namespace {

using engine::Endpoint;
using Name = Shown<py::str>;
using Slot = Shown<std::uint64_t>;

// Python's signal handlers (Ctrl-C) run between the steps of a long wait.
void check_signals() {
  const GilTaken gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

std::chrono::microseconds to_microseconds(double seconds) {
  constexpr double kMost = 1e6;  // longer than any wait, and no overflow
  return std::chrono::microseconds(std::llround(std::min(seconds, kMost) * 1e6));
}

EndpointHandle make_endpoint(const std::string& device, const std::string& name, double timeout,
                             double spin, const std::string& host, const std::string& registration,
                             const std::map<std::string, int>& knobs,
                             const std::map<std::string, engine::RailIndex>& nearest,
                             const std::vector<std::string>& preferred,
                             const std::string& preference) {
  engine::EndpointOptions options{.device = device,
                                  .preference = {preferred, preference},
                                  .port = {},
                                  .queue_pair = {},
                                  .gpu = {},
                                  .nearest = nearest,
                                  .name = name,
                                  .timeout = timeout,
                                  .spin = to_microseconds(spin),
                                  .host = host,
                                  .interrupt = &check_signals,
                                  .cuda = nullptr,
                                  .open_devices = nullptr};
  options.gpu.registration = engine::parse_registration(registration);
  set_knobs(options, knobs);
  return without_gil([&] { return std::make_shared<Endpoint>(options); });
}

std::shared_ptr<PeerHandle> connect(const EndpointHandle& self, Shown<py::bytes> address,
                                    Timeout timeout) {
  const py::bytes held = demand_bytes(address.object, "an address");
  const auto bytes = as_bytes(held);
  const auto dial = [&](const Deadline& deadline) { return self->connect(bytes, deadline); };
  return face_of(self, waiting(*self, timeout.seconds, dial));
}

std::shared_ptr<PeerHandle> accept(const EndpointHandle& self, Timeout timeout) {
  const auto take = [&](const Deadline& deadline) { return self->accept(deadline); };
  return face_of(self, waiting(*self, timeout.seconds, take));
}

std::vector<std::shared_ptr<PeerHandle>> peers(const EndpointHandle& self) {
  std::vector<std::shared_ptr<PeerHandle>> handles;
  for (const auto& peer : self->peers()) handles.push_back(face_of(self, peer));
  return handles;
}

py::dict registration_cache(const Endpoint& self) {
  const engine::RegionCache::Stats stats = self.gpu_registration_stats();
  using namespace py::literals;
  return py::dict("hits"_a = stats.hits, "misses"_a = stats.misses, "evictions"_a = stats.evictions,
                  "stale"_a = stats.stale, "entries"_a = stats.entries, "nbytes"_a = stats.nbytes,
                  "unused"_a = stats.unused, "unused_nbytes"_a = stats.unused_nbytes);
}

std::vector<py::dict> device_events(const Endpoint& self) {
  using namespace py::literals;
  std::vector<py::dict> events;
  for (const engine::DeviceEvent& event : self.device_events()) {
    const std::chrono::duration<double> since_epoch = event.at.time_since_epoch();
    events.push_back(py::dict("time"_a = since_epoch.count(), "device"_a = event.device,
                              "type"_a = event.type, "port"_a = event.port, "peer"_a = event.peer,
                              "message"_a = event.message));
  }
  return events;
}

// A str, or a torch.device, which prints as one.
std::string demand_device(py::handle device) {
  const bool of_torch = type_name(device) == "device";
  return demand_str(
      of_torch ? py::object(py::str(device)) : py::reinterpret_borrow<py::object>(device),
      "a device");
}

void share(Endpoint& self, Name text, Shown<engine::Memory> object) {
  const std::string name = demand_str(text.object, "a name");
  const engine::Memory& memory = demand_memory(object.object, "memory");
  if (name.empty()) throw py::value_error("memory is shared under a name, which is not empty");
  if (memory.endpoint() != self.address().id) {
    throw RegistrationError(
        "this memory is registered with another Endpoint: share it there, or register the array "
        "here");
  }
  self.share(name, memory);
}

Endpoint::Notified wait_notify(Endpoint& self, std::uint32_t first, std::uint32_t count,
                               Timeout timeout, bool reset) {
  return waiting(self, timeout.seconds, [&](const Deadline& deadline) {
    return self.wait_notify(first, count, reset, deadline);
  });
}

void bind_notifications(py::class_<Endpoint, EndpointHandle>& type) {
  type.def(
          "wait_notify",
          [](Endpoint& self, Slot slot, Timeout timeout, bool reset, const py::none&) {
            const std::uint32_t first = demand_slot(slot.object);
            return wait_notify(self, first, 1, timeout, reset).second;
          },
          py::arg("slot"), py::arg("timeout") = py::none(), py::arg("reset") = true, py::kw_only(),
          py::arg("stream") = py::none(), R"(
Wait until a peer has put a value into the slot (0 to 65535) and return it; what was written before it is
there. reset: also empty the slot. A slot holds one value: of several that came in the meantime, the last.

Raises TransferTimeout after `timeout` seconds (default: the Endpoint's), PeerLost (the last peer has left, and
the slot is empty), IndexError (slot).)")
      .def(
          "wait_notify",
          [](const EndpointHandle& self, Slot slot, Timeout timeout, bool reset,
             const py::object& object) {
            const std::uint32_t number = demand_slot(slot.object);
            const auto stream = demand_stream(object);
            auto waiting = without_gil(
                [&] { return self->wait_notify_on(*stream, number, reset, timeout.seconds); });
            return TransferHandle{self, std::move(waiting), ResultKind::unsigned_word};
          },
          py::arg("slot"), py::arg("timeout") = py::none(), py::arg("reset") = true, py::kw_only(),
          py::arg("stream"), R"(
With stream= (as for ``Peer.write``, of any GPU of this process) the call waits for nothing: the stream does.
What it is given from now on begins when a peer has put a value into the slot, and finds what was written before
that. Returns a Transfer, done some 0.1 ms after the stream goes on; its wait() returns the value. What GPUs put
into the slot meanwhile is for the stream, not for calls that wait or look without one.

The stream waits at most `timeout` seconds, counted from when it gets there. It goes on all the same if nothing
came by then, or no peer is left that could notify: a RuntimeWarning says so, and wait() of the Transfer raises
TransferTimeout or PeerLost. The wait is a kernel of one thread, which always ends; the driver's own operation
would not. Where the GPU has no atomics with host memory, a value that replaces one at the very moment when a
stream takes that is lost: give each value under way a slot of its own. Raises
RouteUnavailable (the stream is being captured into a CUDA graph; built without kernels), CudaError, IndexError.)")
      .def(
          "wait_notify_any",
          [](Endpoint& self, Slot first, Slot count, Timeout timeout, bool reset) {
            const std::uint32_t begin = demand_slot(first.object);
            const std::uint32_t length = demand_u32(count.object, "the count of slots");
            return wait_notify(self, begin, length, timeout, reset);
          },
          py::arg("first"), py::arg("count"), py::arg("timeout") = py::none(),
          py::arg("reset") = true,
          "Wait for any slot of [first, first + count); returns (slot, value). As wait_notify().")
      .def(
          "peek_notify",
          [](const Endpoint& self, Slot slot) {
            return self.peek_notify(demand_slot(slot.object));
          },
          py::arg("slot"), "The value in the slot, 0 if it is empty. Never blocks.")
      .def(
          "reset_notify",
          [](Endpoint& self, Slot slot) { return self.reset_notify(demand_slot(slot.object)); },
          py::arg("slot"),
          "Empty the slot and return what was in it, 0 if nothing was. Never blocks.");
}

}  // namespace

void bind_endpoint(py::module_& m) {
  m.def("device_names", &engine::device_names);
  m.attr("DEFAULT_P2P") = engine::EndpointOptions{}.p2p ? 1 : 0;
  m.attr("DEFAULT_STAGING_CHUNK") = engine::kDefaultStagingChunk;
  m.attr("DEFAULT_CACHE_ENTRIES") = engine::RegionCache::Limits{}.entries;
  py::class_<Endpoint, EndpointHandle> type(m, "Endpoint");
  type.def(py::init(&make_endpoint), py::arg("device"), py::arg("name"), py::arg("timeout"),
           py::arg("spin"), py::arg("host"), py::arg("registration"), py::arg("knobs"),
           py::arg("nearest"), py::arg("preferred"), py::arg("preference"))
      .def_property_readonly(
          "address", [](const Endpoint& self) { return to_bytes(self.address().to_bytes()); },
          "What another Endpoint needs to connect: bytes. Contains a secret.")
      .def_property_readonly(
          "id", [](const Endpoint& self) { return engine::to_hex(self.address().id); },
          "Names this Endpoint in the world, hexadecimal; not a secret.")
      .def_property_readonly(
          "name", [](const Endpoint& self) { return self.address().name; },
          "For messages, here and at its peers.")
      .def_property_readonly(
          "device", [](const Endpoint& self) { return self.address().device; },
          "The verbs device, for instance ``\"soft0\"``; several with commas in between.")
      .def_property_readonly("timeout", &Endpoint::timeout,
                             "Bound of a wait that is given none, seconds.")
      .def_property_readonly("closed", &Endpoint::closed, "Whether close() was called.")
      .def_property_readonly("peers", &peers, "The Peers that are connected now.")
      .def_property_readonly("device_events", &device_events, R"(
What the devices said by themselves, the newest last, 64 at most: dicts of ``time`` (seconds since the epoch),
``device``, ``type`` (``"PORT_ERR"``: man ibv_get_async_event), ``port`` (0: it is not about one), ``peer`` (whose
queue pair it is about, else ``""``) and ``message``, with the remedy. Those that mean trouble for a device or a
port are also RuntimeWarnings. Empty once closed.)")
      .def_property_readonly("registration_cache", &registration_cache, R"(
Counters of the registrations of GPU memory, by name: ``hits`` and ``misses`` of look-ups, ``evictions`` of
unused ones for lack of room (knob ``registration_cache``), ``stale`` ones whose memory had been freed; and
the ``entries`` and ``nbytes`` that there are, of which nobody uses ``unused`` and ``unused_nbytes``.)")
      .def("connect", &connect, py::arg("address"), py::arg("timeout") = py::none(), R"(
Connect to the Endpoint with that address (bytes) and return its Peer; the present one if both are
connected already. Both sides may call it at once.

Raises TransferTimeout (no answer within `timeout` seconds; default: the Endpoint's), PeerLost (refused),
AuthenticationError (the secret does not match), ProtocolError (damaged address).)")
      .def("accept", &accept, py::arg("timeout") = py::none(), R"(
The next Peer that connected to this Endpoint and was not returned before. Raises TransferTimeout.)")
      .def("register", &register_array, py::arg("array"), py::kw_only(),
           py::arg("writable") = py::none(), py::arg("cache") = true,
           py::arg("registration") = py::none(), R"(
Register an array, without a copy: numpy, torch, jax, or anything with ``__dlpack__`` or the buffer protocol.

writable: whether peers may write it (default: if the array is writable).
cache: use a registration again that covers the array; its key then reaches all of what it covers.
With False the key reaches the array and nothing more.
registration: how GPU memory is registered, ``"dmabuf"``, ``"peermem"`` or ``"staged"`` (not with the device:
this Endpoint copies through pinned chunks of the host), or RegistrationError says what is missing; or ``"auto"``, the
first that works (on soft0, which copies by itself, also ``"staged"``). Default: the Endpoint's ``registration``.
``Memory.registration`` tells which it became.
The first array of a GPU that is registered (or made by empty()) loads the kernels there and takes 2 MiB of its memory.

Returns Memory, which keeps the array alive. Raises RegistrationError, TypeError, ValueError.)")
      .def(
          "empty",
          [](Endpoint& self, const py::object& shape, const py::object& dtype, Name device,
             const Word& registration) {
            const Dims dims = parse_shape(shape);
            const DType element = parse_dtype(dtype);
            const std::string place = device_name(parse_device(demand_device(device.object)));
            const auto demand = parse_demand(registration);
            return without_gil([&] { return self.empty(dims.span(), element, place, demand); });
          },
          py::arg("shape"), py::arg("dtype") = "uint8", py::arg("device") = "cpu", py::kw_only(),
          py::arg("registration") = py::none(), R"(
Fresh zeroed registered memory. shape: int or tuple. dtype: what numpy.dtype() takes ("float32", "f4", float,
numpy.float32), or a dtype of torch or ml_dtypes, or its name ("bfloat16", "float8_e4m3fn"). device: ``"cpu"`` or
``"cuda:<ordinal>"``, or a torch.device; of a GPU it is memory that other processes can be given and, where the GPU allows it,
adapters reach (cuMemCreate), in pages of 2 MiB: ``torch.from_dlpack(memory)`` or ``cupy.from_dlpack`` is its
array. It lives as long as that array or the Memory does, and then until the GPU has done its present work.
Do not drop it while a stream is being captured into a CUDA graph: as cudaFree would, that spoils the capture.
registration: of GPU memory, as of register().

Raises RegistrationError (no memory, no NVIDIA driver, a device that cannot reach it), CudaError (no such
GPU, no room on it), TransferTimeout (other work kept the GPU from zeroing it for the Endpoint's timeout),
TypeError and ValueError (shape, dtype, device).)")
      .def("share", &share, py::arg("name"), py::arg("memory"), R"(
Publish memory: peers find it by ``peer[name]`` and ``peer.lookup(name)``. Replaces what had the name.)")
      .def(
          "unshare",
          [](Endpoint& self, Name text) {
            const std::string name = demand_str(text.object, "a name");
            if (!self.unshare(name)) {
              throw py::key_error("nothing is shared under the name '" + name + "'");
            }
          },
          py::arg("name"), R"(
Publish it no longer; KeyError if nothing has that name. Who has its RemoteMemory keeps the right: close the Memory to end that.)")
      .def(
          "close",
          [](Endpoint& self, Timeout timeout) {
            const Deadline deadline = self.deadline(timeout.seconds);
            close_and_tell(self.peers(), [&] { self.close(deadline); });
          },
          py::arg("timeout") = py::none(), R"(
Let what is posted finish, at most `timeout` seconds (default: the Endpoint's), leave every peer and stop.
Calling it again does nothing. RuntimeWarning: it dropped a send(), as Peer.close() explains.)");
  bind_notifications(type);
}

}  // namespace zerohop::bindings
