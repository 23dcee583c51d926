// The messages of a World's collectives. zerohop/collectives handles what goes wrong.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bindings/collective_names.hpp"
#include "bindings/exchange_handle.hpp"
#include "bindings/gpu_reducer.hpp"
#include "bindings/handles.hpp"
#include "bindings/topics.hpp"
#include "engine/collective/exchange.hpp"
#include "engine/collective/schedule.hpp"

namespace zerohop::bindings {
namespace collective {
namespace {

using engine::collective::Array;
using engine::collective::Block;
using engine::collective::Exchange;
using engine::collective::Kind;
using engine::collective::Label;
using engine::collective::Lines;
using engine::collective::Rank;

// kind, number, root, nbytes, dtype
using LabelRow = std::tuple<int, std::uint64_t, std::int32_t, std::uint64_t, py::str>;

LabelRow label_row(const Label& label) {
  return {static_cast<int>(label.kind), label.number, label.root, label.nbytes,
          to_str(label.dtype)};
}

std::map<Rank, std::vector<LabelRow>> untaken(const Lines& self) {
  std::map<Rank, std::vector<LabelRow>> found;
  for (const auto& line : self.all()) {
    if (!line) continue;
    for (const Label& label : line->untaken()) found[line->rank()].push_back(label_row(label));
  }
  return found;
}

// Skips if another thread is exchanging: that thread hangs up itself when it is done.
void ring_off(Lines& self, double seconds) {
  without_gil([&] {
    const Lines::Entered entered(self);
    const Deadline deadline = Deadline::after(Deadline::Seconds{seconds});  // shared by all
    if (!entered) return;
    for (const auto& line : self.all()) {
      if (line) line->ring_off(deadline);
    }
  });
}

void bind_lines(py::module_& m) {
  py::class_<Lines, LinesHandle> lines(m, "Lines", R"(
The lines of a rank to other ranks, which carry the messages of collectives. messages, credits: the first slots
of two adjacent ranges, each with `each` slots, on this rank's board. One thread at a time. See
zerohop.collectives.)");
  lines
      .def(py::init([](const EndpointHandle& endpoint, Rank rank, std::uint32_t messages,
                       std::uint32_t each) {
             return std::make_shared<Lines>(
                 endpoint, rank,
                 Lines::Slots{.messages = messages, .credits = messages + each, .each = each});
           }),
           py::arg("endpoint"), py::arg("rank"), py::arg("messages"), py::arg("each"))
      .def(
          "add",
          [](Lines& self, Rank rank, const PeerHandle& peer, const engine::Memory& inbox,
             std::uint32_t messages) { self.add(rank, peer.peer, inbox, messages); },
          py::arg("rank"), py::arg("peer"), py::arg("inbox"), py::arg("messages"),
          "inbox: of INBOX bytes. messages: the first of these slots on that rank's board.")
      .def(
          "meet",
          [](Lines& self, Rank rank, const engine::RemoteMemory& inbox, bool checked, bool near) {
            self.at(rank).meet(inbox, checked, near);
          },
          py::arg("rank"), py::arg("inbox"), py::arg("checked"), py::arg("near"),
          "inbox: the other rank's, for this one. checked: the two compare what arrives "
          "(integrity=1). near: they copy from and to each other.")
      .def(
          "has_news", [](const Lines& self, Rank rank) { return self.at(rank).has_news(); },
          py::arg("rank"), "Whether an unconsumed message has arrived.")
      .def(
          "is_over", [](const Lines& self, Rank rank) { return self.at(rank).is_over(); },
          py::arg("rank"), "Whether that rank has hung up.")
      .def(
          "over",
          [](const Lines& self) {
            std::vector<Rank> ranks;
            for (const auto* line : self.over()) ranks.push_back(line->rank());
            return ranks;
          },
          "Ranks that have hung up: calls do not wait before know_over().")
      .def("know_over", &Lines::know_over, py::arg("rank"),
           "That rank has left, and the calls that do not need it may go on.")
      .def(
          "listen",
          [](Lines& self) {
            std::vector<engine::collective::Line*> found;
            return self.listen(Deadline::after(Deadline::Seconds{0}), found);
          },
          "Whether a notification had arrived. Never blocks.")
      .def("untaken", &untaken,
           "By rank: (kind, number, root, nbytes, dtype) of messages not consumed by a call.")
      .def("ring_off", &ring_off, py::arg("seconds"),
           "Notifies all ranks that no more messages will follow.");
  lines.attr("EAGER") = engine::collective::kEager;
  lines.attr("INBOX") = engine::collective::kInbox;
}

const char* news_name(Exchange::News news) {
  switch (news) {
    case Exchange::News::complete: return "complete";
    case Exchange::News::quiet: return "quiet";
    case Exchange::News::full: return "full";
    case Exchange::News::unmet: return "unmet";
    case Exchange::News::under_way: return "under_way";
    case Exchange::News::unregistered: return "unregistered";
    case Exchange::News::other: return "other";
    case Exchange::News::length: return "length";
    case Exchange::News::payload: return "payload";
    case Exchange::News::copy: return "copy";
  }
  return "";
}

py::object detail_of(const ExchangeHandle& self, const Exchange::Outcome& found) {
  switch (found.news) {
    case Exchange::News::under_way:
      return py::cast(
          TransferHandle{self.endpoint, found.transfer, ResultKind::none, {"write", "to"}});
    case Exchange::News::unregistered: return py::cast(found.move->array);
    case Exchange::News::other:
      return py::cast(std::pair(label_row(found.label), label_row(found.move->label)));
    case Exchange::News::length: return py::cast(found.nbytes);
    case Exchange::News::payload: {
      const auto* const bytes = reinterpret_cast<const char*>(found.payload.data());
      return py::cast(
          std::tuple(found.move->array, found.move->begin, py::bytes(bytes, found.payload.size())));
    }
    case Exchange::News::copy: {
      const auto& [target, source] = found.copy;
      return py::cast(
          std::tuple(target.array, target.begin, source.array, source.begin, target.nbytes));
    }
    default: return py::none();
  }
}

}  // namespace

Stop run_exchange(ExchangeHandle& self, double slice, const Deadline& last) {
  const auto found = without_gil([&] {
    const Lines::Entered entered(*self.lines);
    if (!entered) throw Error("another thread of this rank exchanges over the same lines");
    return self.exchange->run(Deadline::Seconds{slice}, last);
  });
  if (found.news == Exchange::News::complete) return std::nullopt;
  return std::tuple(news_name(found.news), found.rank, detail_of(self, found));
}

namespace {

// (kind, rank, size, root)
using CallRow = std::tuple<std::uint8_t, Rank, Rank, std::int32_t>;
// (kind, number for sends, number for receives, digest, dtype sent, dtype received)
using LabelsRow =
    std::tuple<std::uint8_t, std::uint64_t, std::uint64_t, std::uint32_t, std::string, std::string>;
using ArrayRow = std::tuple<std::uintptr_t, bool>;                       // address, on_host
using BlockRow = std::tuple<std::size_t, std::uint64_t, std::uint64_t>;  // array, begin, nbytes
using ReductionRow = std::tuple<std::uint8_t, double>;                   // op, factor
using PairRow = std::pair<std::optional<Rank>, std::optional<Rank>>;     // to, from

Array array_of(const ArrayRow& row) {
  const auto& [address, on_host] = row;
  return {.bytes = reinterpret_cast<std::byte*>(address), .memory = {}, .on_host = on_host};
}

std::vector<Block> blocks_of(const std::vector<BlockRow>& rows) {
  std::vector<Block> made;
  for (const auto& [array, begin, nbytes] : rows) made.push_back({array, begin, nbytes});
  return made;
}

engine::collective::Labels labels_of(const LabelsRow& row, std::int32_t root) {
  const auto& [kind, send, receive, digest, sent, received] = row;
  const Label common{.kind = static_cast<Kind>(kind), .root = root, .digest = digest, .dtype = {}};
  engine::collective::Labels made{common, common};
  made.send.number = send;
  made.receive.number = receive;
  made.send.dtype = to_dtype_name(sent);
  made.receive.dtype = to_dtype_name(received);
  return made;
}

ExchangeHandle make_exchange(const EndpointHandle& endpoint, const LinesHandle& lines,
                             const CallRow& call, const LabelsRow& labels,
                             const std::vector<ArrayRow>& arrays, const std::vector<BlockRow>& outs,
                             const std::vector<BlockRow>& ins, const PairRow& pair,
                             const ReductionRow& reduction,
                             const std::optional<GpuReducerHandle>& gpu, double left,
                             std::uint64_t piece, bool proposes) {
  engine::collective::Terms terms;
  std::uint8_t kind = 0;
  std::tie(kind, terms.rank, terms.size, terms.root) = call;
  terms.kind = static_cast<Kind>(kind);
  std::ranges::transform(arrays, std::back_inserter(terms.arrays), array_of);
  terms.outs = blocks_of(outs);
  terms.ins = blocks_of(ins);
  std::tie(terms.to, terms.from) = pair;
  const auto [op, factor] = reduction;
  terms.reduction = {.op = static_cast<engine::collective::Op>(op), .dtype = {}, .factor = factor};
  if (op > 0) terms.reduction.dtype = DType::parse(std::get<4>(labels));
  if (gpu) {
    const Deadline until = Deadline::after(Deadline::Seconds{left});
    terms.by = std::make_shared<engine::collective::GpuCombiner>(gpu->reducer, until);
  }
  terms.piece = piece;
  terms.topology = lines->topology();
  ExchangeHandle made{endpoint, lines};
  made.exchange = std::make_unique<Exchange>(lines, proposes);
  made.schedule = engine::collective::Schedules().begin(terms);
  made.labels = labels_of(labels, std::get<3>(call));
  return made;
}

void begin_exchange(ExchangeHandle& self, const std::optional<ArrayRow>& room) {
  if (!self.schedule) throw py::value_error("it has begun");
  if (room) self.schedule->set_room(array_of(*room));
  const bool of_all = self.labels.send.kind != Kind::send_recv;
  self.exchange->begin(std::exchange(self.schedule, nullptr), self.labels, of_all);
}

void bind_exchanges(py::module_& m) {
  py::class_<ExchangeHandle>(m, "Exchange", R"(
A collective of this rank: all its steps. call: (kind, rank, size, root, or -1). labels: what its messages are known by: (kind, number
for what it sends, number for what it receives, digest, dtype sent, dtype received). arrays: rows of (address, whether a CPU has access).
outs, ins: blocks, one or by rank: (number of the array, begin, nbytes). pair: the ranks of a send_recv, to and from. reduction: op,
factor; gpu: a GpuReducer, if all arrays are in its GPU's memory; left: seconds that it may wait for the GPU. piece: most bytes of a
block on the way at a time; 0: as it is best. Keep the arrays until it is complete. See zerohop.collectives.)")
      .def(py::init(&make_exchange), py::arg("endpoint"), py::arg("lines"), py::arg("call"),
           py::arg("labels"), py::arg("arrays"), py::arg("outs"), py::arg("ins"), py::arg("pair"),
           py::arg("reduction"), py::arg("gpu"), py::arg("left"), py::arg("piece"),
           py::arg("proposes"))
      .def_property_readonly(
          "room",
          [](const ExchangeHandle& self) {
            return std::pair(self.schedule->room(), self.schedule->on_host());
          },
          "Before begin(): bytes of memory that it needs besides the arrays, and whether of a "
          "host; "
          "else of the GPU that reduces.")
      .def_property_readonly(
          "partners", [](const ExchangeHandle& self) { return self.schedule->partners(); },
          "Before begin(): the ranks to which it needs Lines.")
      .def("begin", &begin_exchange, py::arg("room"), "room: a row as in `arrays`, the last array.")
      .def(
          "run",
          [](ExchangeHandle& self, double slice, double left) {
            return run_exchange(self, slice, Deadline::after(Deadline::Seconds{left}));
          },
          py::arg("slice"), py::arg("left"), R"(
Continues. None: complete. Else what to handle, the rank concerned, and more: "quiet" (nothing arrived in
`slice` seconds, a rank has hung up, or a call of many steps takes longer), "full" (that rank consumes nothing), "unmet" (look its inbox up),
"under_way" (the Transfer has not ended), "unregistered" (number of the array), "other" (the labels that
arrived and that were expected), "length" (what arrived), "payload" (number of the array, where in it, and the bytes that
belong there), "copy" (the array written to, where there, the array read, where there, bytes). left: seconds that posting may wait.)")
      .def_readonly("number", &ExchangeHandle::number,
                    "Of the call, among those that all ranks make; 0 for send_recv and for "
                    "calls that Python started.")
      .def_property_readonly(
          "steps", [](const ExchangeHandle& self) { return self.exchange->steps(); },
          "That have been begun.")
      .def_property_readonly(
          "culprit", [](const ExchangeHandle& self) { return self.exchange->culprit(); },
          "After run() or look() raised: the rank concerned, or None.")
      .def(
          "set_memory",
          [](const ExchangeHandle& self, std::size_t array, const engine::Memory& memory) {
            self.exchange->array(array).memory = std::make_shared<const engine::Memory>(memory);
          },
          py::arg("array"), py::arg("memory"), "All of the array.")
      .def(
          "array",
          [](const ExchangeHandle& self, std::size_t array) { return self.plan->array(array); },
          py::arg("array"),
          "Of what SmallCollectives has begun: the program's array of that number, or plain bytes.")
      .def(
          "proposers", [](const ExchangeHandle& self) { return self.exchange->proposers(); },
          "Once complete: the ranks that propose a GpuGroup, as `proposes` does for this one.")
      .def(
          "missing", [](const ExchangeHandle& self) { return self.exchange->missing(); },
          "Ranks that still have to send something.")
      .def(
          "look", [](const ExchangeHandle& self) { self.exchange->look(); },
          "Raises the error of a failed transfer.")
      .def(
          "announce", [](const ExchangeHandle& self) { self.exchange->announce(); },
          "Announces large blocks to the receivers, once.");
}

}  // namespace
}  // namespace collective

void bind_exchange(py::module_& m) {
  collective::bind_lines(m);
  collective::bind_exchanges(m);
}

}  // namespace zerohop::bindings
