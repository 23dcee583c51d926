#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <utility>

#include "base/error.hpp"
#include "bindings/demands.hpp"
#include "bindings/handles.hpp"
#include "bindings/topics.hpp"
#include "bindings/transfer_object.hpp"

namespace zerohop::bindings {
namespace {

using engine::Transfer;

py::object result_of(const TransferHandle& handle) {
  const std::uint64_t result = handle.transfer->result();
  switch (handle.kind) {
    case ResultKind::none: return py::none();
    case ResultKind::signed_word: return py::int_(static_cast<std::int64_t>(result));
    case ResultKind::nbytes:
    case ResultKind::unsigned_word: return py::int_(result);
  }
  return py::none();
}

// "recv of 8 bytes with tag 3 from peer 'b' is not done yet; ..."
std::string overdue(const TransferHandle& handle, double seconds) {
  const engine::Transfer& transfer = *handle.transfer;
  std::string text = handle.asked.call;
  if (transfer.nbytes() > 0) text += " of " + std::to_string(transfer.nbytes()) + " bytes";
  if (handle.asked.tag) text += " with tag " + std::to_string(*handle.asked.tag);
  const auto& stats = transfer.route().stats;  // null for waits of streams
  if (stats && !stats->peer.empty()) {
    text += std::string(" ") + handle.asked.side + " peer '" + stats->peer + "'";
  }
  return text +
         " is not done yet; it goes on, and the Transfer stays valid: wait again, or close "
         "the peer" +
         waited(seconds);
}

py::object outcome_of_transfer(const TransferHandle& handle, double late) {
  if (!handle.transfer->done()) throw TransferTimeout(overdue(handle, late), 0, Effect::all);
  return result_of(handle);
}

TransferHandle wait_on(const TransferHandle& handle, const py::object& object, Timeout timeout) {
  const auto stream = demand_stream(object);
  if (!stream) throw py::type_error("stream must be a GPU stream, not None");
  handle.endpoint->check_process();
  const bool captured = handle.transfer->captured() != nullptr;
  if (handle.transfer->done() && !captured) (void)handle.transfer->result();  // raises its error
  auto waiting = without_gil(
      [&] { return handle.endpoint->wait_transfer_on(*stream, handle.transfer, timeout.seconds); });
  return {handle.endpoint, std::move(waiting), ResultKind::none, {"wait_on", ""}};
}

using QueuePairSettings =
    py::typing::Dict<py::str, py::typing::Union<py::int_, py::float_, py::str>>;

QueuePairSettings by_name(const engine::Settings& settings) {
  QueuePairSettings all;
  for (const auto& [name, value] : settings) all[py::str(name)] = py::cast(value);
  return all;
}

// Between two GPUs includes the topology: NVML and /sys are queried only on request.
std::string reason_of(const engine::Route& route) {
  if (!route.gpus) return route.reason;
  const auto& [near, far] = *route.gpus;
  const auto between = py::module_::import("zerohop.topology.between").attr("between");
  return route.reason + between(near, far).cast<std::string>();
}

using Times = py::typing::Dict<py::str, py::float_>;

std::optional<Times> times_of(const TransferHandle& handle) {
  const engine::Times& times = handle.transfer->times();
  if (!times.asked()) return std::nullopt;
  const bool done = handle.transfer->done();  // read before the rest: if true, it has ended
  Times known;
  known["asked"] = *times.asked();
  if (const auto begun = times.begun()) known["begun"] = *begun;
  if (const auto ended = times.ended(); done && ended) known["ended"] = *ended;
  return known;
}

std::string describe_transfer(const TransferHandle& handle) {
  const char* state = !handle.transfer->done()      ? "pending"
                      : handle.transfer->captured() ? "part of a CUDA graph"
                      : handle.transfer->failed()   ? "failed"
                                                    : "done";
  return "<zerohop.Transfer of " + std::to_string(handle.transfer->nbytes()) + " bytes, " + state +
         ">";
}

}  // namespace

py::object wait_transfer(const TransferHandle& handle, Timeout timeout) {
  if (handle.transfer->done()) return result_of(handle);
  handle.endpoint->check_process();
  const Deadline deadline = handle.endpoint->deadline(timeout.seconds);
  without_gil([&] { handle.transfer->wait(deadline); });
  return outcome_of_transfer(handle, timeout.seconds.value_or(handle.endpoint->timeout()));
}

void bind_transfer(py::module_& m) {
  py::class_<engine::Route>(m, "Route", "The route of a transfer's bytes, and why it was chosen.")
      .def_readonly(
          "kind", &engine::Route::kind,
          R"(``"host"``: host memory over a queue pair. ``"gpudirect"``: the adapter reads and writes GPU memory
by itself. ``"staged"``: GPU memory through pinned chunks of the host. ``"p2p"``: peer-mapped memory on one
host, the default there.)")
      .def_readonly("device", &engine::Route::device, "The device that serves it.")
      .def_property_readonly("reason", &reason_of, R"(
One sentence. Between two GPUs it names the number and speed of NVLinks (from NVML, with ``pip install
zerohop[nvlink]``), or the kind of PCIe path (from /sys): looked up when first asked for.)")
      .def_property_readonly(
          "settings",
          [](const engine::Route& route) {
            using Rails = py::typing::List<QueuePairSettings>;
            using Value = py::typing::Union<py::int_, py::float_, py::str, Rails>;
            py::typing::Dict<py::str, Value> all = by_name(route.settings);
            if (!route.rails.empty()) {
              py::list rails;
              for (const engine::Settings& rail : route.rails) rails.append(by_name(rail));
              all["rails"] = rails;
            }
            return all;
          },
          R"(The effective settings by name, for instance ``"mtu"`` in bytes: of the Endpoint and of the queue pair. The
keywords of an Endpoint are explained there; rd_atomic is shown as rd_atomic_out and rd_atomic_in, what both
ends agreed on; message_slots as message_slots_in, its own, and message_slots_out, the peer's; message_bytes is
the smaller of both ends'. relaxed_ordering is what was requested: a kernel may silently ignore it. For an
Endpoint on several devices ``"rails"`` is a list of dicts with the settings of each rail's queue pair (MTU,
GID, reads, ...); the first that carries the transfer is also shown at the top level. Empty for the route of a
Transfer: ask ``Peer.route``.)")
      .def("__str__",
           [](const engine::Route& route) {
             return route.kind + " over " + route.device + ", because " + reason_of(route);
           })
      .def("__repr__", [](const engine::Route& route) {
        return "<zerohop.Route " + route.kind + " over " + route.device + ">";
      });

  py::class_<TransferHandle>(m, "Transfer", R"(
One asynchronous operation. When it is done without error the source may be reused and the bytes are at the
destination. Dropping it changes nothing: the transfer continues, and keeps its memory alive.

``await transfer`` is ``transfer.wait()`` for asyncio. ``asyncio.gather(a, b)`` and ``asyncio.wait_for(a, 5)``
take transfers as they are; for a task, ``asyncio.ensure_future(a)`` (create_task wants a coroutine).
Cancelling ends the waiting, not the transfer.)")
      .def("wait", &wait_transfer, py::arg("timeout") = py::none(), R"(
Wait until done, at most ``timeout`` seconds (default: the Endpoint's). Any number of threads may wait.

Returns the old value for ``fetch_add`` and ``compare_swap``, the number of bytes for ``recv``, else None.
Raises TransferTimeout when the time is over (the transfer continues), or the error that ended the transfer:
PeerLost, VerbsError, ... whose ``effect`` states what may have been written.)")
      .def_property_readonly(
          "done", [](const TransferHandle& handle) { return handle.transfer->done(); },
          "Whether it has ended, with or without error. Never blocks.")
      .def_property_readonly(
          "nbytes", [](const TransferHandle& handle) { return handle.transfer->nbytes(); },
          "Bytes of all its arrays; for a recv, the room.")
      .def_property_readonly(
          "timeout", [](const TransferHandle& handle) { return handle.endpoint->timeout(); },
          "Default bound of a wait, in seconds: the Endpoint's.")
      .def_property_readonly(
          "route", [](const TransferHandle& handle) { return handle.transfer->route(); },
          "The route it takes.")
      .def_property_readonly("times", &times_of, R"(
Times of its stages in seconds of ``time.monotonic()``, or None if it was begun while ``zh.keep_times()`` was
off, the default. A dict: ``"asked"``, when the call made it; ``"begun"``, when a device, a CPU or a GPU first
got a part of it to move (a GPU may have other work to do first); ``"ended"``, when it was done, with or
without error. Stages not reached yet are missing, as is ``"begun"`` where this process moves nothing: a recv
whose bytes came with the message.)")
      .def(
          "wait_on",
          [](const TransferHandle& handle, const py::object& stream, Timeout timeout) {
            return wait_on(handle, stream, timeout);
          },
          py::arg("stream"), py::arg("timeout") = py::none(), R"(
Make a GPU stream wait for this transfer: later work of the stream begins once it is done. The call itself does
not wait. stream: as for ``Peer.write``, of any GPU of this process.

Returns a Transfer that is done when the stream continues. The stream waits at most `timeout` seconds (default:
the Endpoint's), counted from when it reaches the wait. If the transfer is not done by then, or fails, the
stream continues anyway: a RuntimeWarning reports it, and wait() of the returned Transfer raises
TransferTimeout, or the error that ended the transfer. If the transfer has failed already, raises its error at
once; RouteUnavailable (no GPU), CudaError. The wait is a kernel of one thread.

While the stream is being captured into a CUDA graph, the wait becomes part of the graph. A Transfer that is
itself part of a graph orders another stream of the same capture behind it; once the capture has ended,
RouteUnavailable.)")
      .def("__await__",
           [](const py::object& self) {
             return py::module_::import("zerohop.aio").attr("await_transfer")(self);
           })
      .def("__repr__", &describe_transfer);

  m.def("keep_times", &engine::Times::keep, py::arg("on") = true, R"(
Whether to record ``Transfer.times`` for the Transfers that this process begins from now on. Off by default: it
costs three clock reads per Transfer. In a notebook a Transfer draws its own.)");

  m.def("outcome", &outcome_of_transfer, py::arg("of"), py::arg("late"),
        "Its result or error; if it has not ended, TransferTimeout after `late` seconds.");
}

}  // namespace zerohop::bindings
