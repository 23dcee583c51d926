// Used by zerohop.aio: calls that return at once, and a bell that wakes the waiting loop.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/bell.hpp"
#include "base/error.hpp"
#include "base/locks.hpp"
#include "bindings/convert.hpp"
#include "bindings/demands.hpp"
#include "bindings/handles.hpp"
#include "bindings/topics.hpp"
#include "engine/notify/slots.hpp"

namespace zerohop::bindings {
namespace {

using engine::AsyncWaits;
using engine::Endpoint;
using Slot = Shown<std::uint64_t>;
using Late = std::optional<double>;  // seconds waited, once the timeout has passed

// Signals an event loop, through a descriptor, which of its waits may be complete. The signalling
// thread never needs the GIL.
class LoopBell {
 public:
  int fileno() const noexcept { return bell_.fd(); }

  void push(std::uint64_t token) {
    {
      const std::lock_guard lock(mutex_);
      tokens_.push_back(token);
      if (tokens_.size() > 1) return;  // it rings already
    }
    bell_.ring();
  }

  std::vector<std::uint64_t> drain() {
    bell_.silence();
    const std::lock_guard lock(mutex_);
    return std::exchange(tokens_, {});
  }

 private:
  Bell bell_;
  Mutex<Rank::awaited> mutex_;
  std::vector<std::uint64_t> tokens_;
};

using BellHandle = std::shared_ptr<LoopBell>;

struct DialHandle {
  EndpointHandle endpoint;
  std::shared_ptr<engine::Dialling> dialling;
};

struct InquiryHandle {
  EndpointHandle endpoint;  // its thread serves the peer
  std::shared_ptr<engine::Inquiry> inquiry;
};

engine::Transfer& what_ends(const TransferHandle& handle) { return *handle.transfer; }
engine::Dialling& what_ends(const DialHandle& handle) { return *handle.dialling; }
engine::Inquiry& what_ends(const InquiryHandle& handle) { return *handle.inquiry; }

template <typename Handle>
engine::Done::Id watch(const BellHandle& bell, const Handle& handle, std::uint64_t token) {
  handle.endpoint->check_process();
  return what_ends(handle).on_done([bell, token] { bell->push(token); });
}

template <typename Handle>
void leave(const Handle& handle, engine::Done::Id id) {
  // In a child of fork() the lock may be held for ever by a thread of the parent.
  if (!handle.endpoint->of_parent()) what_ends(handle).forget(id);
}

AsyncWaits::Id armed(Endpoint& endpoint, const AsyncWaits::Begun& wait) {
  if (wait.first) without_gil([&] { endpoint.arm_for_async_waits(); });
  return wait.id;
}

AsyncWaits::Id watch_slots(const BellHandle& bell, Endpoint& endpoint, Slot first, Slot count,
                           std::uint64_t token) {
  const std::uint32_t begin = demand_slot(first.object);
  const std::uint32_t length = demand_u32(count.object, "the count of slots");
  return armed(endpoint, endpoint.await_slots(begin, length, [bell, token] { bell->push(token); }));
}

AsyncWaits::Id watch_accept(const BellHandle& bell, Endpoint& endpoint, std::uint64_t token) {
  return armed(endpoint, endpoint.await_peer([bell, token] { bell->push(token); }));
}

std::optional<Endpoint::Notified> find_notify(Endpoint& endpoint, Slot first, Slot count,
                                              bool reset, Late late) {
  const std::uint32_t begin = demand_slot(first.object);
  const std::uint32_t length = demand_u32(count.object, "the count of slots");
  const auto found = endpoint.find_notify(begin, length, reset);
  if (found || !late) return found;
  throw TransferTimeout(engine::no_notification(begin, length) + waited(*late));
}

std::shared_ptr<PeerHandle> find_accepted(const EndpointHandle& endpoint, Late late) {
  if (const auto peer = endpoint->find_accepted()) return face_of(endpoint, peer);
  if (!late) return nullptr;
  throw TransferTimeout(Endpoint::kNobodyConnected + waited(*late));
}

DialHandle begin_dial(const EndpointHandle& endpoint, Shown<py::bytes> address) {
  const py::bytes held = demand_bytes(address.object, "an address");
  return {endpoint, endpoint->dial(as_bytes(held))};
}

std::shared_ptr<PeerHandle> outcome_of_dial(const DialHandle& dial, double late) {
  if (!dial.dialling->done()) throw TransferTimeout(dial.dialling->late() + waited(late));
  return face_of(dial.endpoint, dial.dialling->peer());
}

InquiryHandle begin_lookup(const PeerHandle& peer, Shown<py::str> text, bool now) {
  return {peer.endpoint, peer.peer->lookups().ask(demand_str(text.object, "a name"), now)};
}

std::optional<engine::RemoteMemory> outcome_of_inquiry(const InquiryHandle& handle, double late) {
  if (!handle.inquiry->done()) throw TransferTimeout(handle.inquiry->late() + waited(late));
  return handle.inquiry->memory();
}

double bound_of(const Endpoint& endpoint, Timeout timeout) {
  (void)endpoint.deadline(timeout.seconds);  // rejects an invalid number of seconds
  return timeout.seconds.value_or(endpoint.timeout());
}

constexpr const char* kSeconds = "The bound in seconds of a call with that timeout.";
constexpr const char* kOutcome =
    "Its result or error; if it has not ended, TransferTimeout after `late` seconds.";

}  // namespace

void bind_async_waits(py::module_& m) {
  m.def("seconds", &bound_of, py::arg("endpoint"), py::arg("timeout"), kSeconds);
  m.def(
      "seconds",
      [](const PeerHandle& peer, Timeout timeout) { return bound_of(*peer.endpoint, timeout); },
      py::arg("peer"), py::arg("timeout"), kSeconds);
  m.def("find_notify", &find_notify, py::arg("endpoint"), py::arg("first"), py::arg("count"),
        py::arg("reset"), py::arg("late") = py::none(),
        "As wait_notify_any(), without waiting: None if all are empty, or TransferTimeout after "
        "`late` seconds.");
  m.def("find_accepted", &find_accepted, py::arg("endpoint"), py::arg("late") = py::none(),
        "As accept(), without waiting: None if no peer has connected, or TransferTimeout after "
        "`late` "
        "seconds.");

  py::class_<DialHandle>(m, "Dial",
                         "A connect() in progress; dropping it cancels it. See zerohop.aio.")
      .def_property_readonly("done", [](const DialHandle& dial) { return dial.dialling->done(); });
  m.def("dial", &begin_dial, py::arg("endpoint"), py::arg("address"), "Starts to connect.");
  m.def("outcome", &outcome_of_dial, py::arg("of"), py::arg("late"), kOutcome);

  py::class_<InquiryHandle>(m, "Inquiry", "A lookup() in progress. See zerohop.aio.")
      .def_property_readonly("done",
                             [](const InquiryHandle& asked) { return asked.inquiry->done(); });
  m.def("ask", &begin_lookup, py::arg("peer"), py::arg("name"), py::arg("now") = false,
        "Starts a look-up of memory. now: also ends, with None, if nothing has the name.");
  m.def("outcome", &outcome_of_inquiry, py::arg("of"), py::arg("late"), kOutcome);

  py::class_<LoopBell, BellHandle>(m, "Bell", "Wakes an event loop; see zerohop.aio.")
      .def(py::init<>())
      .def("fileno", &LoopBell::fileno)
      .def("watch", &watch<TransferHandle>, py::arg("what"), py::arg("token"))
      .def("watch", &watch<DialHandle>, py::arg("what"), py::arg("token"))
      .def("watch", &watch<InquiryHandle>, py::arg("what"), py::arg("token"))
      .def("watch_slots", &watch_slots, py::arg("endpoint"), py::arg("first"), py::arg("count"),
           py::arg("token"))
      .def("watch_accept", &watch_accept, py::arg("endpoint"), py::arg("token"))
      .def("drain", &LoopBell::drain);
  m.def(
      "leave_wait", [](Endpoint& endpoint, AsyncWaits::Id id) { endpoint.forget_async_wait(id); },
      py::arg("what"), py::arg("id"),
      "Ends a watch started by watch(), watch_slots() or watch_accept().");
  m.def("leave_wait", &leave<TransferHandle>, py::arg("what"), py::arg("id"));
  m.def("leave_wait", &leave<DialHandle>, py::arg("what"), py::arg("id"));
  m.def("leave_wait", &leave<InquiryHandle>, py::arg("what"), py::arg("id"));
}

}  // namespace zerohop::bindings
