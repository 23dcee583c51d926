// The notification board of an Endpoint.
#include <utility>

#include "bindings/bind_endpoint.hpp"
#include "bindings/demands.hpp"

namespace zerohop::bindings {
namespace {

using engine::Endpoint;
using Slot = Shown<std::uint64_t>;

Endpoint::Notified wait_notify(Endpoint& self, std::uint32_t first, std::uint32_t count,
                               Timeout timeout, bool reset) {
  return waiting(self, timeout.seconds, [&](const Deadline& deadline) {
    return self.wait_notify(first, count, reset, deadline);
  });
}

}  // namespace

void bind_notifications(EndpointClass& type) {
  type.def(
          "wait_notify",
          [](Endpoint& self, Slot slot, Timeout timeout, bool reset, const py::none&) {
            const std::uint32_t first = demand_slot(slot.object);
            return wait_notify(self, first, 1, timeout, reset).second;
          },
          py::arg("slot"), py::arg("timeout") = py::none(), py::arg("reset") = true, py::kw_only(),
          py::arg("stream") = py::none(), R"(
Wait until a peer has put a value into the slot (0 to 65535) and return it; data written before it has arrived.
reset: also empty the slot. A slot holds one value: of several puts, the last.

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
            return TransferHandle{
                self, std::move(waiting), ResultKind::unsigned_word, {"wait_notify", ""}};
          },
          py::arg("slot"), py::arg("timeout") = py::none(), py::arg("reset") = true, py::kw_only(),
          py::arg("stream"), R"(
With stream= (as for ``Peer.write``, of any GPU of this process) the call does not wait: the stream does. Later
work of the stream begins when a peer has put a value into the slot, and sees what was written before that.
Returns a Transfer, done about 0.1 ms after the stream continues; its wait() returns the value. What GPUs put
into the slot meanwhile belongs to the stream, not to calls that wait or poll without one.

The stream waits at most `timeout` seconds, counted from when it reaches the wait. It continues anyway if
nothing arrived by then, or no peer is left that could notify: a RuntimeWarning reports it, and wait() of the
Transfer raises TransferTimeout or PeerLost. The wait is a kernel of one thread, which always ends; the
driver's own operation would not. Where the GPU has no atomics with host memory, a value that replaces another
at the very moment when a stream takes that one is lost: use a separate slot for each outstanding value.

While the stream is being captured into a CUDA graph, the wait becomes part of the graph, and each replay takes
the next notification. Those that replays of a peer's graph put are taken one by one, even if several came
before. As long as the graph exists, the slot is for graphs alone. wait() of the Transfer raises Error, as it
has no result of its own; a replay that waited in vain is reported by a RuntimeWarning, and the next call of
wait_notify() with stream= raises its error. Raises RouteUnavailable (reset=False in a capture; a slot that a
graph waits for; built without kernels), CudaError, IndexError.)")
      .def(
          "wait_notify_any",
          [](Endpoint& self, Slot first, Slot count, Timeout timeout, bool reset) {
            const std::uint32_t begin = demand_slot(first.object);
            const std::uint32_t length = demand_u32(count.object, "the count of slots");
            return wait_notify(self, begin, length, timeout, reset);
          },
          py::arg("first"), py::arg("count"), py::arg("timeout") = py::none(),
          py::arg("reset") = true,
          "Wait for any slot of [first, first + count); returns (slot, value). Otherwise as "
          "wait_notify().")
      .def(
          "notify",
          [](Endpoint& self, Slot slot, Shown<std::uint64_t> value) {
            const auto notification = demand_notification(slot.object, value.object);
            without_gil([&] { self.notify(notification); });
          },
          py::arg("slot"), py::arg("value"), R"(
Put a value (1 to 2**32 - 1) into a slot (0 to 65535) of this Endpoint's own board, as a peer's ``Peer.notify``
does: it is visible at once, and wakes waiting threads. It is not ordered with the writes of peers.

Raises IndexError (slot), ValueError (value).)")
      .def(
          "peek_notify",
          [](const Endpoint& self, Slot slot) {
            return self.peek_notify(demand_slot(slot.object));
          },
          py::arg("slot"), "The value in the slot, 0 if it is empty. Never blocks.")
      .def(
          "reset_notify",
          [](Endpoint& self, Slot slot) { return self.reset_notify(demand_slot(slot.object)); },
          py::arg("slot"), "Empty the slot and return its value, 0 if it was empty. Never blocks.");
}

}  // namespace zerohop::bindings
