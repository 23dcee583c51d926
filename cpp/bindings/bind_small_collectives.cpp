// Calls of a World's collectives that go well. What is to be done otherwise is in
// zerohop/collectives.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/collective_plan.hpp"
#include "bindings/exchange_handle.hpp"
#include "bindings/handles.hpp"
#include "bindings/topics.hpp"
#include "engine/collective/call_log.hpp"
#include "engine/collective/exchange.hpp"

namespace zerohop::bindings {
namespace collective {
namespace {

using engine::collective::CallLog;
using engine::collective::Exchange;
using engine::collective::Kind;
using engine::collective::Move;
using engine::collective::Rank;

// sends, receives: as the other ranks count them.
ExchangeHandle begin(std::unique_ptr<Plan> self, const EndpointHandle& endpoint,
                     const LinesHandle& lines, std::uint64_t sends, std::uint64_t receives,
                     std::uint32_t digest) {
  for (Move& move : self->sends) {
    move.label.number = sends;
    move.label.digest = digest;
  }
  for (Move& move : self->receives) {
    move.label.number = receives;
    move.label.digest = digest;
  }
  const bool of_all = self->call.kind != Kind::send_recv;
  auto exchange =
      std::make_unique<Exchange>(lines, std::move(self->sends), std::move(self->receives), of_all);
  return {endpoint, lines, std::move(self), std::move(exchange)};
}

// Held by the thread whose call runs. Who waits for it has let go of the GIL.
class CallLock {
 public:
  CallLock() : lock_(PyThread_allocate_lock()) {
    if (lock_ == nullptr) throw std::bad_alloc();
  }
  ~CallLock() { PyThread_free_lock(lock_); }
  CallLock(const CallLock&) = delete;
  CallLock& operator=(const CallLock&) = delete;

  bool try_acquire() noexcept {
    if (PyThread_acquire_lock(lock_, NOWAIT_LOCK) != 1) return false;
    owner_ = PyThread_get_thread_ident();
    return true;
  }
  // False: the deadline passed first. Throws what a signal handler raises.
  bool acquire(const Deadline& deadline) {
    while (!try_acquire()) {
      if (Deadline::Clock::now() >= deadline.at()) return false;
      without_gil([&] {
        if (PyThread_acquire_lock_timed(lock_, kLook.count(), 0) == PY_LOCK_ACQUIRED) {
          PyThread_release_lock(lock_);
        }
      });
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    return true;
  }
  bool is_mine() const noexcept { return owner_ == PyThread_get_thread_ident(); }
  // Does nothing for a thread that does not hold it: one whom a signal has interrupted does not
  // know.
  void release() noexcept {
    if (!is_mine()) return;
    owner_ = kNobody;
    PyThread_release_lock(lock_);
  }

 private:
  static constexpr std::chrono::microseconds kLook = std::chrono::milliseconds(100);
  static constexpr unsigned long kNobody = PYTHREAD_INVALID_THREAD_ID;

  PyThread_type_lock lock_;
  unsigned long owner_ = kNobody;  // read and written with the GIL
};

struct Calls {
  EndpointHandle endpoint;
  LinesHandle lines;
  std::shared_ptr<CallLog> log;
  Place place;
  std::uint32_t bell = 0;
  double slice = 0;
  std::vector<py::object> ended;  // by kind: what a call returns
  std::unique_ptr<CallLock> lock = std::make_unique<CallLock>();
  std::uint64_t under_way = 0;                                 // that Python has started
  std::unordered_map<Rank, std::uint64_t> sent{}, received{};  // send_recv's
  std::optional<ExchangeHandle> stopped{};
  Deadline until = Deadline::after(Deadline::Seconds{0});
};

bool is_free(const Calls& self, const Plan& plan) {
  const auto met = [&](const Move& move) { return self.lines->find(move.rank) != nullptr; };
  return self.under_way == 0 && !self.log->is_over() && !self.endpoint->closed() &&
         self.endpoint->peek_notify(self.bell) == 0 && std::ranges::all_of(plan.sends, met) &&
         std::ranges::all_of(plan.receives, met);
}

// make_plan: a Plan, or null; start: of it an ExchangeHandle. Stopped, or where the exchange
// throws, the call keeps the lock.
template <typename MakePlan, typename Start>
py::object run_call(Calls& self, std::optional<double> seconds, MakePlan make_plan, Start start) {
  if (!self.lock->try_acquire()) return py::none();
  self.stopped.reset();
  try {
    auto plan = make_plan();
    if (plan && is_free(self, *plan)) self.stopped = start(std::move(plan));
  } catch (...) {
    self.lock->release();
    throw;
  }
  if (!self.stopped) {
    self.lock->release();
    return py::none();
  }
  const double left = seconds.value_or(self.endpoint->timeout());
  self.until = Deadline::after(Deadline::Seconds{left});
  const auto kind = static_cast<std::size_t>(self.stopped->plan->call.kind);
  if (auto stop = run_exchange(*self.stopped, std::min(self.slice, left), left)) {
    return py::cast(std::move(*stop));
  }
  self.stopped.reset();
  self.lock->release();
  return self.ended[kind];
}

// A rank as the program has given it, or nothing where Python has a word to say about it.
std::optional<Rank> rank_in(const Calls& self, py::handle given) {
  if (PyLong_CheckExact(given.ptr()) == 0) return std::nullopt;
  int overflow = 0;
  const long number = PyLong_AsLongAndOverflow(given.ptr(), &overflow);
  if (overflow != 0 || number < 0 || number >= static_cast<long>(self.place.size)) {
    return std::nullopt;
  }
  return static_cast<Rank>(number);
}

py::object call_of_all(Calls& self, std::uint8_t kind, py::handle root, py::handle out,
                       py::handle array, std::optional<double> seconds) {
  Place place = self.place;
  if (!root.is_none()) {
    const auto rank = rank_in(self, root);
    if (!rank) return py::none();
    place.root = static_cast<std::int32_t>(*rank);
  }
  return run_call(
      self, seconds,
      [&] { return plan_of(*self.endpoint, place, static_cast<Kind>(kind), out, array); },
      [&](std::unique_ptr<Plan> plan) {
        const auto made = self.log->add(plan->call);
        auto begun = begin(std::move(plan), self.endpoint, self.lines, made.number, made.number,
                           made.digest);
        begun.number = made.number;
        return begun;
      });
}

py::object call_of_pair(Calls& self, py::handle to_whom, py::handle array, py::handle from_whom,
                        py::handle out, std::optional<double> seconds) {
  const auto to = rank_in(self, to_whom), from = rank_in(self, from_whom);
  if (to.has_value() == to_whom.is_none() || from.has_value() == from_whom.is_none()) {
    return py::none();
  }
  return run_call(
      self, seconds, [&] { return plan_of_pair(*self.endpoint, self.place, to, array, from, out); },
      [&](std::unique_ptr<Plan> plan) {
        const std::uint64_t sends = to ? ++self.sent[*to] : 0;
        const std::uint64_t receives = from ? ++self.received[*from] : 0;
        return begin(std::move(plan), self.endpoint, self.lines, sends, receives, 0);
      });
}

double seconds_left(const Calls& self) {
  const Deadline::Seconds left = self.until.at() - Deadline::Clock::now();
  return std::max(0.0, left.count());
}

void bind_calls(py::module_& m) {
  py::class_<Calls>(m, "SmallCollectives", R"(
Collectives of small host arrays among up to eight ranks, from their arguments to their end, as long as all goes well; and the
lock that a collective of any size holds while it runs. One object for each World. See zerohop.collectives.

bell: the slot where somebody rings who has found that calls differ. slice: seconds after which a wait stops for a look. ended:
by kind, what is returned of a call that has ended.)")
      .def(py::init([](const EndpointHandle& endpoint, const LinesHandle& lines,
                       const std::shared_ptr<CallLog>& log, Rank rank, Rank size,
                       std::uint32_t bell, double slice, std::vector<py::object> ended) {
             const Place place{.rank = rank, .size = size};
             return Calls{endpoint, lines, log, place, bell, slice, std::move(ended)};
           }),
           py::arg("endpoint"), py::arg("lines"), py::arg("log"), py::arg("rank"), py::arg("size"),
           py::arg("bell"), py::arg("slice"), py::arg("ended"))
      .def("of_all", &call_of_all, py::arg("kind"), py::arg("root"), py::arg("out"),
           py::arg("array"), py::arg("seconds"), R"(
Returns None if nothing has happened: the call is unusual or wrong, or others are under way; `ended[kind]` if it has ended; else
what has stopped it, as Exchange.run() has it. Stopped, or interrupted by an exception, a call that has begun keeps the lock, and
stopped() is what goes on. root: None for none. seconds: timeout; None: the Endpoint's.)")
      .def("of_pair", &call_of_pair, py::arg("to"), py::arg("array"), py::arg("from_"),
           py::arg("out"), py::arg("seconds"), "The same of a send_recv.")
      .def(
          "stopped",
          [](Calls& self) -> std::optional<ExchangeHandle> {
            if (!self.lock->is_mine()) return std::nullopt;
            return std::exchange(self.stopped, std::nullopt);
          },
          "The Exchange of a call of this thread that has been stopped; None: there is none.")
      .def_property_readonly("left", &seconds_left, "Seconds, of what has been stopped.")
      .def(
          "started", [](Calls& self) { ++self.under_way; },
          "Python has a call under way: until finished() there is none of this kind.")
      .def("finished", [](Calls& self) { --self.under_way; })
      .def(
          "acquire",
          [](Calls& self, double seconds) {
            return self.lock->acquire(Deadline::after(Deadline::Seconds{seconds}));
          },
          py::arg("seconds"), "Waits for the lock. False: another thread held it all the time.")
      .def(
          "release", [](Calls& self) { self.lock->release(); },
          "Does nothing if another thread holds the lock, or none.")
      .def_property_readonly(
          "mine", [](const Calls& self) { return self.lock->is_mine(); },
          "Whether this thread holds the lock.")
      .def(
          "count_sent", [](Calls& self, Rank to) { return ++self.sent[to]; }, py::arg("to"),
          "The number of the next send_recv to that rank.")
      .def(
          "count_received", [](Calls& self, Rank from) { return ++self.received[from]; },
          py::arg("from_"));
}

}  // namespace
}  // namespace collective

void bind_small_collectives(py::module_& m) { collective::bind_calls(m); }

}  // namespace zerohop::bindings
