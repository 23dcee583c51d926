// The fast path of a World's collectives. zerohop/collectives handles everything else.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/call_lock.hpp"
#include "bindings/collective_plan.hpp"
#include "bindings/exchange_handle.hpp"
#include "bindings/fast_method.hpp"
#include "bindings/handles.hpp"
#include "bindings/instance.hpp"
#include "bindings/topics.hpp"
#include "engine/collective/call_log.hpp"
#include "engine/collective/exchange.hpp"

namespace zerohop::bindings {
namespace collective {
namespace {

using engine::collective::CallLog;
using engine::collective::Exchange;
using engine::collective::Kind;
using engine::collective::Op;
using engine::collective::Rank;

struct Calls {
  EndpointHandle endpoint;
  LinesHandle lines;
  std::shared_ptr<CallLog> log;
  Place place;
  std::uint32_t bell = 0;
  double slice = 0;
  std::vector<py::object> ended;  // by kind: what a call returns
  std::unique_ptr<CallLock> lock = std::make_unique<CallLock>();
  std::uint64_t under_way = 0;                    // calls that Python has started
  std::vector<std::uint64_t> sent{}, received{};  // counts of send_recv calls, by rank
  std::optional<ExchangeHandle> current{};        // of the current call; reused for the next one
  bool stopped = false;                           // current belongs to a stopped call
  Deadline until = Deadline::after(Deadline::Seconds{0});
};

bool is_free(const Calls& self, const Plan& plan) {
  const auto has_line = [&](Rank rank) {
    const auto* const line = self.lines->find(rank);
    return line != nullptr && (line->near() || !plan.large);
  };
  return self.under_way == 0 && !self.log->is_over() && !self.endpoint->closed() &&
         self.endpoint->peek_notify(self.bell) == 0 &&
         std::ranges::all_of(plan.schedule->partners(), has_line);
}

Plan& next_plan(Calls& self) {
  if (!self.current || self.stopped) {
    self.stopped = false;
    self.current.emplace(ExchangeHandle{self.endpoint, self.lines});
    self.current->plan = std::make_unique<Plan>();
  }
  return *self.current->plan;
}

// What the other ranks know the call by.
struct Number {
  std::uint64_t send = 0, receive = 0;
  std::uint32_t digest = 0;
};

void begin(ExchangeHandle& current, const Number& number) {
  Plan& plan = *current.plan;
  const bool of_all = plan.call.kind != Kind::send_recv;
  plan.labels.send.number = number.send;
  plan.labels.receive.number = number.receive;
  plan.labels.send.digest = plan.labels.receive.digest = number.digest;
  current.number = of_all ? number.send : 0;
  current.exchange->begin(std::move(plan.schedule), plan.labels, of_all);
}

// Releases the program's arrays at the end of the scope.
class Borrowed {
 public:
  explicit Borrowed(Plan& plan) noexcept : plan_(&plan) {}
  ~Borrowed() {
    if (plan_ != nullptr) plan_->release();
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  void keep() noexcept { plan_ = nullptr; }

 private:
  Plan* plan_;
};

// make: fills a Plan, or cannot. count: numbers the call. If the call stops or the exchange throws,
// the call keeps the lock.
template <typename Make, typename Count>
py::object run_call(Calls& self, py::handle timeout, Make make, Count count) {
  const auto seconds = seconds_in(timeout, self.endpoint->timeout());
  TryLock inside(*self.lock);
  if (!seconds || !inside) return py::none();
  Plan& plan = next_plan(self);
  Borrowed arrays(plan);
  if (!make(plan) || !is_free(self, plan)) return py::none();
  begin(*self.current, count(plan));
  self.until = Deadline::after(Deadline::Seconds{*seconds});
  self.stopped = true;
  inside.keep();
  arrays.keep();
  if (auto stop = run_exchange(*self.current, std::min(self.slice, *seconds), self.until)) {
    return py::cast(std::move(*stop));
  }
  self.stopped = false;
  plan.release();
  self.lock->release();
  return self.ended[static_cast<std::size_t>(plan.call.kind)];
}

// A rank as passed by the program, or nullopt: Python validates.
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
                       py::handle array, py::handle timeout, std::uint8_t op, double factor) {
  if (op >= engine::collective::kOpNames.size()) return py::none();
  Place place = self.place;
  place.op = static_cast<Op>(op);
  place.factor = factor;
  place.topology = self.lines->topology();
  if (!root.is_none()) {
    const auto rank = rank_in(self, root);
    if (!rank) return py::none();
    place.root = static_cast<std::int32_t>(*rank);
  }
  return run_call(
      self, timeout,
      [&](Plan& plan) {
        return plan.make(*self.endpoint, place, static_cast<Kind>(kind), out, array);
      },
      [&](const Plan& plan) {
        const auto made = self.log->add(plan.call, plan.factor);
        return Number{made.number, made.number, made.digest};
      });
}

py::object call_of_pair(Calls& self, py::handle to_whom, py::handle array, py::handle from_whom,
                        py::handle out, py::handle timeout) {
  const auto to = rank_in(self, to_whom), from = rank_in(self, from_whom);
  if (to.has_value() == to_whom.is_none() || from.has_value() == from_whom.is_none()) {
    return py::none();
  }
  return run_call(
      self, timeout,
      [&](Plan& plan) { return plan.make_pair(*self.endpoint, self.place, to, array, from, out); },
      [&](const Plan&) {
        const std::uint64_t sends = to ? ++self.sent[*to] : 0;
        return Number{sends, from ? ++self.received[*from] : 0};
      });
}

double seconds_left(const Calls& self) {
  const Deadline::Seconds left = self.until.at() - Deadline::Clock::now();
  return std::max(0.0, left.count());
}

// An int from 0 to limit - 1.
std::optional<std::uint8_t> small_number(PyObject* given, std::size_t limit) {
  if (PyLong_CheckExact(given) == 0) return std::nullopt;
  int overflow = 0;
  const long number = PyLong_AsLongAndOverflow(given, &overflow);
  if (overflow != 0 || number < 0 || number >= static_cast<long>(limit)) return std::nullopt;
  return static_cast<std::uint8_t>(number);
}

PyObject* of_all_fast(const Arguments& arguments) {
  auto* calls = find_instance<Calls>(arguments.self);
  PyObject* const* const given = arguments.given;
  const bool moves = arguments.count == 5, reduces = arguments.count == 7;
  if (calls == nullptr || !(moves || reduces) || arguments.named() > 0) return nullptr;
  const auto kind = small_number(given[0], engine::collective::kKinds);
  const auto op = moves ? std::optional<std::uint8_t>(0)
                        : small_number(given[5], engine::collective::kOpNames.size());
  if (!kind || !op || (reduces && PyFloat_CheckExact(given[6]) == 0)) return nullptr;
  const double factor = moves ? 1.0 : PyFloat_AS_DOUBLE(given[6]);
  return call_of_all(*calls, *kind, given[1], given[2], given[3], given[4], *op, factor)
      .release()
      .ptr();
}

PyObject* of_pair_fast(const Arguments& arguments) {
  auto* calls = find_instance<Calls>(arguments.self);
  if (calls == nullptr || arguments.count != 5 || arguments.named() > 0) return nullptr;
  PyObject* const* const given = arguments.given;
  return call_of_pair(*calls, given[0], given[1], given[2], given[3], given[4]).release().ptr();
}

void bind_calls(py::module_& m) {
  py::class_<Calls>(m, "SmallCollectives", R"(
Complete collectives of host arrays, while all goes well: those with small blocks, and large ones in slices of up to EAGER
bytes. And the lock that a collective of any size holds while it runs. One object per World. See zerohop.collectives.

bell: the slot that a rank notifies when it finds that calls differ. slice: seconds after which a wait returns
to check for failures. ended: by kind, what a completed call returns.)")
      .def(py::init([](const EndpointHandle& endpoint, const LinesHandle& lines,
                       const std::shared_ptr<CallLog>& log, Rank rank, Rank size,
                       std::uint32_t bell, double slice, std::vector<py::object> ended) {
             const Place place{.rank = rank, .size = size};
             Calls made{endpoint, lines, log, place, bell, slice, std::move(ended)};
             made.sent.resize(size);
             made.received.resize(size);
             return made;
           }),
           py::arg("endpoint"), py::arg("lines"), py::arg("log"), py::arg("rank"), py::arg("size"),
           py::arg("bell"), py::arg("slice"), py::arg("ended"))
      .def("of_all", &call_of_all, py::arg("kind"), py::arg("root"), py::arg("out"),
           py::arg("array"), py::arg("timeout"), py::arg("op") = 0, py::arg("factor") = 1.0, R"(
Returns None if nothing has happened: the call is unusual or wrong, or others are in progress; `ended[kind]` if
it has completed; else what stopped it, as from Exchange.run(). A call that has begun keeps the lock when it is
stopped or interrupted by an exception; continue it with stopped(). root: None for none. op: of a reduction, by its place in OPS.)")
      .def("of_pair", &call_of_pair, py::arg("to"), py::arg("array"), py::arg("from_"),
           py::arg("out"), py::arg("timeout"), "The same for send_recv.")
      .def(
          "stopped",
          [](Calls& self) -> std::optional<ExchangeHandle> {
            if (!self.lock->is_mine() || !self.stopped) return std::nullopt;
            self.stopped = false;
            return std::exchange(self.current, std::nullopt);
          },
          "The Exchange of this thread's stopped call; None: there is none.")
      .def_property_readonly("left", &seconds_left, "Seconds left of the stopped call.")
      .def(
          "started", [](Calls& self) { ++self.under_way; },
          "Python has started a call: until finished() this class refuses calls.")
      .def("finished", [](Calls& self) { --self.under_way; })
      .def(
          "acquire",
          [](Calls& self, double seconds) {
            return self.lock->acquire(Deadline::after(Deadline::Seconds{seconds}));
          },
          py::arg("seconds"), "Waits for the lock. False: the time passed first.")
      .def(
          "release", [](Calls& self) { self.lock->release(); },
          "Does nothing if another thread holds the lock, or none.")
      .def_property_readonly(
          "mine", [](const Calls& self) { return self.lock->is_mine(); },
          "Whether this thread holds the lock.")
      .def(
          "count_sent", [](Calls& self, Rank to) { return ++self.sent.at(to); }, py::arg("to"),
          "The number of the next send_recv to that rank.")
      .def(
          "count_received", [](Calls& self, Rank from) { return ++self.received.at(from); },
          py::arg("from_"));
}

}  // namespace
}  // namespace collective

void bind_small_collectives(py::module_& m) { collective::bind_calls(m); }

void make_small_collectives_fast(py::module_& m) {
  const py::object calls = m.attr("SmallCollectives");
  make_fast<&collective::of_all_fast>(calls, "of_all");
  make_fast<&collective::of_pair_fast>(calls, "of_pair");
}

}  // namespace zerohop::bindings
