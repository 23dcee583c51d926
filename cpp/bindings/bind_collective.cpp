// The steps of a World's barrier, and the log of a rank's calls. zerohop/_world/barrier.py and
// zerohop/_world/history.py handle what goes wrong.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/call_lock.hpp"
#include "bindings/collective_names.hpp"
#include "bindings/fast_method.hpp"
#include "bindings/handles.hpp"
#include "bindings/instance.hpp"
#include "bindings/topics.hpp"
#include "engine/collective/barrier.hpp"
#include "engine/collective/call_log.hpp"

namespace zerohop::bindings {
namespace collective {
namespace {

using engine::collective::Barrier;
using engine::collective::Call;
using engine::collective::CallLog;
using engine::collective::CallRecord;
using engine::collective::Kind;
using engine::collective::Op;
using LogHandle = std::shared_ptr<CallLog>;

LogHandle make_log(const py::object& memory) {
  const auto view = py::reinterpret_steal<py::object>(PyMemoryView_FromObject(memory.ptr()));
  if (!view) throw py::error_already_set();
  const Py_buffer& buffer = *PyMemoryView_GET_BUFFER(view.ptr());
  if (buffer.readonly != 0) throw py::value_error("a log of calls needs writable memory");
  const std::span bytes(static_cast<std::byte*>(buffer.buf), static_cast<std::size_t>(buffer.len));
  return std::make_shared<CallLog>(bytes, own_object(view));  // the view holds the bytes
}

// position, number, digest, kind, root, nbytes (None: any), dtype, op
using Row = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t, int, std::int32_t,
                       std::optional<std::uint64_t>, py::str, int>;

Row row_of(const CallRecord& record) {
  const Call& call = record.call;
  std::optional<std::uint64_t> nbytes;
  if (call.nbytes != engine::collective::kAnyBytes) nbytes = call.nbytes;
  return {record.position, record.number, record.digest,      static_cast<int>(call.kind),
          call.root,       nbytes,        to_str(call.dtype), static_cast<int>(call.op)};
}

std::vector<Row> rows_of(const std::vector<CallRecord>& records) {
  std::vector<Row> rows;
  for (const CallRecord& record : records) rows.push_back(row_of(record));
  return rows;
}

void bind_log(py::module_& m) {
  py::class_<CallLog, LogHandle> log(m, "CallLog", R"(
The calls of a rank, in memory that other ranks read: 64 records of 64 bytes, zero-initialized. See
zerohop.history. A row is (position, number, digest, kind, root, nbytes, dtype, op); nbytes is None where ranks
may differ in it; op is 0 without a reduction. KINDS: the names of the kinds of calls.)");
  log.def(py::init(&make_log), py::arg("memory"))
      .def(
          "add",
          [](CallLog& self, std::uint8_t kind, std::int32_t root,
             std::optional<std::uint64_t> nbytes, const std::string& dtype, std::uint8_t op,
             double factor) {
            const auto bytes = nbytes.value_or(engine::collective::kAnyBytes);
            return row_of(self.add({.kind = static_cast<Kind>(kind),
                                    .op = static_cast<Op>(op),
                                    .root = root,
                                    .nbytes = bytes,
                                    .dtype = to_dtype_name(dtype)},
                                   factor));
          },
          py::arg("kind"), py::arg("root"), py::arg("nbytes"), py::arg("dtype"), py::arg("op") = 0,
          py::arg("factor") = 1.0, "Numbers it: collectives from 1, and barriers separately.")
      .def("end", &CallLog::end, "No more collectives follow, only barriers.")
      .def("rows", [](const CallLog& self) { return rows_of(self.read()); })
      .def_static(
          "rows_in",
          [](const py::bytes& memory) {
            const auto bytes = static_cast<std::string_view>(memory);
            return rows_of(CallLog::read(std::as_bytes(std::span(bytes))));
          },
          py::arg("memory"), "The same for another rank's log.");
  py::list kinds;
  for (const std::string_view name : engine::collective::kKindNames) {
    kinds.append(py::str(name.data(), name.size()));
  }
  log.attr("KINDS") = py::tuple(kinds);
}

const char* name_of(Barrier::News news) {
  switch (news) {
    case Barrier::News::through: return "through";
    case Barrier::News::unknown: return "unknown";
    case Barrier::News::lost: return "lost";
    case Barrier::News::reported: return "reported";
    case Barrier::News::different: return "different";
    case Barrier::News::quiet: return "quiet";
  }
  return "";
}

using News = std::optional<std::pair<const char*, std::int64_t>>;

// A Barrier, and the thread that is in it.
struct BarrierCalls {
  EndpointHandle endpoint;
  LogHandle log;
  std::unique_ptr<Barrier> steps;
  double slice = 0;
  std::unique_ptr<CallLock> lock = std::make_unique<CallLock>();
  bool over = false;
  News stop{};  // of a stopped call, for the call that continues it
};

News run_steps(BarrierCalls& self, double seconds, bool with_digest) {
  Barrier& steps = *self.steps;
  if (steps.rung()) return std::pair("rung", -1);
  steps.begin();
  const auto found = without_gil(
      [&] { return steps.run(with_digest, Deadline::after(Deadline::Seconds{seconds})); });
  if (found.news == Barrier::News::through) return std::nullopt;
  return std::pair(name_of(found.news), found.rank);
}

News run_barrier(BarrierCalls& self, double seconds, bool with_digest) {
  if (self.stop) return std::exchange(self.stop, std::nullopt);
  return run_steps(self, seconds, with_digest);
}

bool enter(BarrierCalls& self) {
  if (self.stop && self.lock->is_mine()) return true;  // attempt() left it held
  return self.lock->try_acquire();
}

// None: the barrier has completed. Else the seconds spent; if the barrier has begun, this thread
// still holds the lock.
std::optional<double> attempt(BarrierCalls& self, py::handle timeout) {
  const auto seconds = seconds_in(timeout, self.slice);
  if (!seconds || self.over || self.log->is_over() || self.endpoint->closed()) return 0;
  TryLock inside(*self.lock);
  if (!inside) return 0;
  const auto begin = Deadline::Clock::now();
  self.stop = run_steps(self, std::min(*seconds, self.slice), true);
  if (!self.stop) return std::nullopt;
  inside.keep();
  return Deadline::Seconds(Deadline::Clock::now() - begin).count();
}

PyObject* attempt_fast(const Arguments& arguments) {
  auto* barrier = find_instance<BarrierCalls>(arguments.self);
  if (barrier == nullptr || arguments.count != 1 || arguments.named() > 0) return nullptr;
  return py::cast(attempt(*barrier, arguments.given[0])).release().ptr();
}

void bind_barrier(py::module_& m) {
  using Rank = Barrier::Rank;
  py::class_<BarrierCalls> barrier(m, "Barrier", R"(
The steps of a World's barrier; see zerohop.barrier. Only the thread that has entered may call it. slice:
seconds after which a wait returns to check for failures.)");
  barrier
      .def(py::init([](const EndpointHandle& endpoint, const LogHandle& log, Rank rank, Rank size,
                       std::uint32_t first_slot, std::uint32_t bell, double slice) {
             const Barrier::Place place{
                 .rank = rank, .size = size, .first_slot = first_slot, .bell = bell};
             auto steps = std::make_unique<Barrier>(endpoint, log, place);
             return BarrierCalls{endpoint, log, std::move(steps), slice};
           }),
           py::arg("endpoint"), py::arg("log"), py::arg("rank"), py::arg("size"),
           py::arg("first_slot"), py::arg("bell"), py::arg("slice"))
      .def(
          "connect",
          [](BarrierCalls& self, Rank rank, const PeerHandle& peer, std::uint32_t first_slot) {
            self.steps->connect(rank, peer.peer, first_slot);
          },
          py::arg("rank"), py::arg("peer"), py::arg("first_slot"),
          "first_slot: of the barrier on that rank's board.")
      .def("attempt", &attempt, py::arg("timeout"), R"(
A complete barrier, if nothing goes wrong. None: all ranks have arrived. Else the seconds spent; continue with
enter() and run(). This thread may have entered already.)")
      .def("enter", &enter, "False: another thread is in the barrier.")
      .def("leave", [](BarrierCalls& self) { self.lock->release(); })
      .def(
          "end", [](BarrierCalls& self) { self.over = true; }, "Disables attempt().")
      .def("run", &run_barrier, py::arg("seconds"), py::arg("with_digest"), R"(
Continues the barrier in progress, or begins one. None: all ranks have arrived. Else what to handle, and the
rank concerned: "quiet" (nothing arrived in time), "rung" (a rank found that calls differ), "unknown" (connect
to that rank), "lost" (that rank is lost), "reported" (another rank reports it lost; -1: it has called shrink()),
"different" (it has made other calls).)")
      .def_property_readonly(
          "number", [](const BarrierCalls& self) { return self.steps->number(); },
          "Of the barrier in progress.")
      .def(
          "missing", [](const BarrierCalls& self) { return self.steps->missing(); },
          "Ranks not heard from yet, in this step.")
      .def(
          "unreported", [](const BarrierCalls& self) { return self.steps->unreported(); },
          "(rank, slot on its board) of those that this rank has yet to notify.");
  barrier.attr("SLOTS") = Barrier::kSlots;
  barrier.attr("FREE") = Barrier::kSteps - 1;
  barrier.attr("LOST") = Barrier::kLost;
}

}  // namespace
}  // namespace collective

void bind_collective(py::module_& m) {
  collective::bind_log(m);
  collective::bind_barrier(m);
}

void make_barrier_fast(py::module_& m) {
  make_fast<&collective::attempt_fast>(m.attr("Barrier"), "attempt");
}

}  // namespace zerohop::bindings
