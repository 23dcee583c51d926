// Objects that kernels of the program use to communicate on their own.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>

#include "base/crc32c.hpp"
#include "base/error.hpp"
#include "bindings/array_import.hpp"
#include "bindings/bind_peer.hpp"
#include "bindings/demands.hpp"
#include "bindings/handles.hpp"
#include "bindings/topics.hpp"
#include "gda/device_board.hpp"
#include "gda/device_queue.hpp"

namespace zerohop::bindings {
namespace {

using engine::RemoteMemory;
using Slot = Shown<std::uint64_t>;

// Closed: null.
template <typename Made>
struct DeviceHandle {
  EndpointHandle endpoint;
  std::unique_ptr<Made> made;

  const Made& open() const {
    if (made) return *made;
    throw Error("it was closed: make a new one");
  }
  void close() {
    auto last = std::move(made);
    without_gil([&] { last.reset(); });
  }
};
using QueueHandle = DeviceHandle<gda::DeviceQueue>;
using BoardHandle = DeviceHandle<gda::DeviceBoard>;

engine::Hearers demand_hearers(const std::string& word) {
  if (word == "both") return engine::Hearers::both;
  if (word == "gpu") return engine::Hearers::kernels;
  if (word == "cpu") return engine::Hearers::cpu;
  throw py::value_error("hears must be 'gpu', 'cpu' or 'both', not '" + word + "'");
}

// A NumPy scalar, which is how CuPy and others take a struct.
template <typename Made>
py::object value_of(const DeviceHandle<Made>& self) {
  const auto& value = self.open().value();
  return py::module_::import("numpy").attr("void")(
      py::bytes(reinterpret_cast<const char*>(&value), sizeof value));
}

gda::WantedWay demand_way(const std::string& word) {
  if (word == "auto") return gda::WantedWay::automatic;
  if (word == "mapped") return gda::WantedWay::mapped;
  if (word == "direct") return gda::WantedWay::direct;
  if (word == "proxy") return gda::WantedWay::proxy;
  throw py::value_error("way must be 'auto', 'mapped', 'direct' or 'proxy', not '" + word + "'");
}

engine::RingPlace demand_place(const char* ring, const std::string& word, gda::WantedWay way) {
  if (word == "host") return engine::RingPlace::host;
  const std::string name(ring);
  if (word != "gpu") {
    throw py::value_error(name + " must be 'host' or 'gpu', not '" + word + "'");
  }
  if (way != gda::WantedWay::direct) {
    throw py::value_error(name + "='gpu' places a ring of a queue pair: it needs way=\"direct\"");
  }
  return engine::RingPlace::gpu;
}

QueueHandle device_queue(const PeerHandle& self, py::handle local, Shown<RemoteMemory> remote,
                         const std::string& hears, const std::string& way,
                         const std::string& send_queue, const std::string& completion_queue,
                         Timeout timeout) {
  const gda::WantedWay wanted = demand_way(way);
  const gda::DeviceQueue::Options options{
      .hearers = demand_hearers(hears),
      .way = wanted,
      .places = {.sends = demand_place("send_queue", send_queue, wanted),
                 .completions = demand_place("completion_queue", completion_queue, wanted)},
      .timeout = timeout.seconds};
  const RemoteMemory& theirs = demand_remote(remote.object, "remote", local);
  const LocalArray memory(*self.endpoint, local);
  return {self.endpoint, waiting(*self.endpoint, timeout.seconds, [&](const Deadline& deadline) {
            return std::make_unique<gda::DeviceQueue>(
                gda::QueueArrays{*self.endpoint, self.peer, *memory, theirs}, options, deadline);
          })};
}

BoardHandle device_board(const EndpointHandle& self, Slot first, Slot count, Shown<py::str> device,
                         Timeout timeout) {
  const std::string gpu = demand_device(device.object);
  if (gpu == "cpu") throw py::value_error("kernels run on a GPU, as \"cuda:0\", not on cpu");
  const std::uint32_t begin = demand_slot(first.object);
  const std::uint32_t length = demand_u32(count.object, "the count of slots");
  return {self, waiting(*self, timeout.seconds, [&](const Deadline& deadline) {
            return std::make_unique<gda::DeviceBoard>(
                self->claim_slots(gpu, begin, length, deadline), deadline);
          })};
}

template <typename Made>
void bind_common(py::class_<DeviceHandle<Made>>& type) {
  using Handle = DeviceHandle<Made>;
  type.def_property_readonly("value", &value_of<Made>,
                             "The struct that a kernel takes by value, as bytes.")
      .def_property_readonly(
          "address", [](const Handle& self) { return self.open().address(); },
          "Address of the same struct in GPU memory, for kernels that take a pointer.")
      .def_property_readonly(
          "device", [](const Handle& self) { return self.open().device(); },
          "The GPU that runs the kernels, ``\"cuda:0\"``.")
      .def_property_readonly(
          "closed", [](const Handle& self) { return !self.made; }, "Whether close() was called.")
      .def("close", &Handle::close, R"(
Kernels must not use it any more. Kernels launched earlier are awaited, on a separate thread, before anything
is unmapped. Idempotent; leaving a ``with`` block closes it, too.)")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Handle& self, const py::args&) { self.close(); });
}

}  // namespace

std::uint32_t crc32c_of(py::handle object) {
  const ImportedArray array = import_array(object);
  if (array.device != "cpu") {
    throw py::value_error("crc32c takes an array of the host's memory, not of " + array.device +
                          ": kernels have crc32c() of <zerohop/device.cuh>");
  }
  if (!array.layout.is_contiguous()) throw py::value_error("crc32c takes a contiguous array");
  const auto* const bytes = reinterpret_cast<const std::byte*>(array.layout.address);
  const py::gil_scoped_release released;
  return zerohop::crc32c({bytes, array.layout.nbytes()});
}

// Call after those of Peer and Endpoint.
void bind_device(py::module_& m) {
  m.attr("DEVICE_QUEUE_NBYTES") = sizeof(device::Queue);
  m.attr("DEVICE_BOARD_NBYTES") = sizeof(device::Board);
  m.def("crc32c", &crc32c_of, py::arg("array"), R"(
The CRC32C (Castagnoli; RFC 3720, B.4) of the bytes of a contiguous array in host memory. Kernels that call
``put_notify_checked`` send that of their data as the notification's value (1 for 0).

Raises TypeError (not an array), ValueError (on a GPU, not contiguous).)");
  py::class_<QueueHandle> queue(m, "DeviceQueue", R"(
A local array, a Peer's array and the way between them, for kernels: made by ``Peer.device_queue``. Its
``value`` is the ``zerohop::device::Queue`` of ``<zerohop/device.cuh>``, found by ``zerohop.include_dir()``.)");
  bind_common(queue);
  queue.def_property_readonly(
      "route", [](const QueueHandle& self) { return self.open().route(); },
      "The route of the kernels' bytes, and why.");
  queue.def_property_readonly(
      "way", [](const QueueHandle& self) { return self.open().way(); },
      R"(``"mapped"``: kernels load and store themselves. ``"direct"``: they drive a queue pair, which the adapter
executes. ``"proxy"``: they write the same entries into a ring, which a thread of this process executes.)");
  queue.def_property_readonly(
      "error",
      [](const QueueHandle& self) -> std::optional<std::string> {
        const gda::DeviceQueue& opened = self.open();
        std::string why = without_gil([&] { return opened.error(); });
        return why.empty() ? std::nullopt : std::optional(std::move(why));
      },
      "Why calls of kernels now return ``Status::failed``; None: nothing has failed.");
  py::class_<BoardHandle> board(m, "DeviceBoard", R"(
Slots of this Endpoint's board, for kernels to wait on: made by ``Endpoint.device_board``. Its ``value`` is the
``zerohop::device::Board`` of ``<zerohop/device.cuh>``.)");
  bind_common(board);

  auto peer = py::reinterpret_borrow<PeerClass>(m.attr("Peer"));
  peer.def("device_queue", &device_queue, py::arg("local"), py::arg("remote"), py::kw_only(),
           py::arg("hears") = "both", py::arg("way") = "auto", py::arg("send_queue") = "host",
           py::arg("completion_queue") = "host", py::arg("timeout") = py::none(), R"(
Lets kernels of `local`'s GPU put, get and notify on their own. Both arrays are contiguous, and the local one
lies on a GPU. The ways (``DeviceQueue.way`` and ``.route`` show which one is used, and why not another):

- ``"mapped"``: loads and stores, without the CPU. The other process must be on this host, and its memory must
  be on a GPU in a single chunk (as from ``Endpoint.empty()`` or cudaMalloc). It stays mapped until the queue
  is closed; a peer that closes that memory or the connection waits for this, at most five seconds.
- ``"proxy"``: in all other cases, to GPU and host memory alike. Kernels write entries into a ring, and a
  thread of this process executes them like the Peer's other transfers through devices. The thread polls the
  ring continuously while there is work, and every millisecond after a second without any.
- ``"direct"``, only on request: kernels write entries into the send queue of their own queue pair, ring its
  doorbell and poll its completions themselves (GPU-initiated RDMA). Works with ``soft0``; on mlx5 adapters it
  is verified in simulation alone. The device must reach both arrays. For an adapter's doorbell the driver needs
  ``options nvidia NVreg_RegistryDwords="PeerMappingOverride=1;"``.
- ``"auto"`` (default): ``"mapped"``, else ``"proxy"``.

hears: who receives notifications that kernels put through mapped memory: the peer's kernels and streams
(``"gpu"``), its ``wait_notify`` (``"cpu"``), or ``"both"``, which costs a kernel that notifies repeatedly half
a microsecond more each time. Those notifications wake nobody, nor do a direct queue's: a CPU that sleeps in
wait_notify polls every millisecond. By the other ways both receive them.

send_queue, completion_queue: where these rings of a direct queue lie: in host memory (``"host"``, default) or in
that of `local`'s GPU (``"gpu"``), where kernels write entries and read completions locally. On an mlx5 adapter
the GPU takes DEVX (rdma-core 35, for dma-bufs 43) and dma-bufs or nvidia-peermem; soft0 reads and writes there
by copies.

timeout: bound in seconds of this call, and default bound of a kernel's calls (default: the Endpoint's). Raises
RouteUnavailable, ValueError (unsuitable arrays), PeerLost, CudaError, RegistrationError, TransferTimeout.)");
  auto endpoint = py::reinterpret_borrow<py::class_<engine::Endpoint, EndpointHandle>>(
      py::object(m.attr("Endpoint")));
  endpoint.def("device_board", &device_board, py::arg("first"), py::arg("count") = 1, py::kw_only(),
               py::arg("device") = "cuda:0", py::arg("timeout") = py::none(), R"(
`count` slots from `first` on, for kernels of `device` to wait on. Until it is closed, notifications that GPUs
put there belong to kernels, and calls that wait or poll do not see them.

Raises RouteUnavailable (no CUDA driver, built without kernels, a GPU that does not reach the board),
IndexError (slots), ValueError (no slot, not a GPU's name), CudaError (no such GPU, or it failed),
TransferTimeout (a kernel keeps the GPU busy for `timeout` seconds; default: the Endpoint's), and Error once
closed.)");
}

}  // namespace zerohop::bindings
