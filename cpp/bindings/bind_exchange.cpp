// The messages of a World's collectives. zerohop/collectives handles what goes wrong.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
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
#include "bindings/handles.hpp"
#include "bindings/topics.hpp"
#include "engine/collective/exchange.hpp"

namespace zerohop::bindings {
namespace collective {
namespace {

using engine::collective::Exchange;
using engine::collective::Kind;
using engine::collective::Label;
using engine::collective::Lines;
using engine::collective::Move;
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
          [](Lines& self, Rank rank, const engine::RemoteMemory& inbox, bool checked) {
            self.at(rank).meet(inbox, checked);
          },
          py::arg("rank"), py::arg("inbox"), py::arg("checked"),
          "inbox: the other rank's, for this one. checked: the two compare what arrives "
          "(integrity=1).")
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
  lines.attr("FEW") = engine::collective::kFew;
  lines.attr("INBOX") = engine::collective::kInbox;
}

// The fields that all moves of a call share.
struct Common {
  Kind kind;
  std::int32_t root;
  std::uint32_t digest;
};

// (rank, address or None, nbytes, Memory or None, number, whole, part, dtype)
Move move_of(py::handle item, const Common& common) {
  const auto fields = py::reinterpret_borrow<py::tuple>(item);
  Move move;
  move.rank = fields[0].cast<Rank>();
  if (!fields[1].is_none()) {
    move.bytes = reinterpret_cast<std::byte*>(fields[1].cast<std::uintptr_t>());
  }
  move.nbytes = fields[2].cast<std::uint64_t>();
  if (const auto* memory = find_memory(fields[3])) {
    move.memory = std::make_shared<const engine::Memory>(*memory);
  }
  move.label = {.kind = common.kind,
                .root = common.root,
                .number = fields[4].cast<std::uint64_t>(),
                .nbytes = fields[5].cast<std::uint64_t>(),
                .part = fields[6].cast<std::uint32_t>(),
                .digest = common.digest,
                .dtype = to_dtype_name(fields[7].cast<std::string>())};
  if (!move.eager() && !move.memory) throw py::value_error("a large block needs its Memory");
  return move;
}

std::vector<Move> moves_of(const py::list& items, const Common& common) {
  std::vector<Move> moves;
  moves.reserve(items.size());
  for (const py::handle item : items) moves.push_back(move_of(item, common));
  return moves;
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
  }
  return "";
}

py::object detail_of(const ExchangeHandle& self, const Exchange::Outcome& found) {
  switch (found.news) {
    case Exchange::News::under_way:
      return py::cast(
          TransferHandle{self.endpoint, found.transfer, ResultKind::none, {"write", "to"}});
    case Exchange::News::unregistered: return py::cast(self.exchange->number_of(*found.move));
    case Exchange::News::other:
      return py::cast(std::pair(label_row(found.label), label_row(found.move->label)));
    case Exchange::News::length: return py::cast(found.nbytes);
    case Exchange::News::payload: {
      const auto* const bytes = reinterpret_cast<const char*>(found.payload.data());
      return py::cast(
          std::pair(self.exchange->number_of(*found.move), py::bytes(bytes, found.payload.size())));
    }
    default: return py::none();
  }
}

}  // namespace

Stop run_exchange(ExchangeHandle& self, double slice, const Deadline& last) {
  const auto found = without_gil([&] {
    const Lines::Entered entered(*self.lines);
    if (!entered) throw Error("another thread of this rank exchanges over the same lines");
    const Deadline pause = Deadline::after(Deadline::Seconds{slice});
    for (;;) {
      auto stop = self.exchange->run(Deadline::Seconds{slice}, last);
      if (stop.news != Exchange::News::complete || !self.plan) return stop;
      if (!self.plan->next(self.exchange->receives())) {
        self.exchange->end();
        return stop;
      }
      self.exchange->begin(self.plan->sends, self.plan->receives, /*of_all=*/true);
      // A call of many steps stops now and then for signals, and its timeout.
      if (pause.passed()) return Exchange::Outcome{.news = Exchange::News::quiet};
    }
  });
  if (found.news == Exchange::News::complete) return std::nullopt;
  return std::tuple(news_name(found.news), found.rank, detail_of(self, found));
}

namespace {

void bind_exchanges(py::module_& m) {
  py::class_<ExchangeHandle>(m, "Exchange", R"(
Sends blocks to some ranks while receiving from others. sends, receives: lists of (rank, address, nbytes,
Memory, number of the call, bytes of the whole block, part, dtype). The address is None where a CPU has no
access. The Memory is None for a block of at most EAGER bytes that a CPU can access; a receive may have to get
one later. of_all: all ranks make the call. See zerohop.collectives.)")
      .def(py::init([](const EndpointHandle& endpoint, const LinesHandle& lines,
                       const py::list& sends, const py::list& receives, std::uint8_t kind,
                       std::int32_t root, std::uint32_t digest, bool of_all, bool proposes) {
             const Common common{static_cast<Kind>(kind), root, digest};
             auto out = moves_of(sends, common), in = moves_of(receives, common);
             ExchangeHandle made{endpoint, lines};
             made.exchange = std::make_unique<Exchange>(lines, proposes);
             made.exchange->begin(out, in, of_all);
             return made;
           }),
           py::arg("endpoint"), py::arg("lines"), py::arg("sends"), py::arg("receives"),
           py::arg("kind"), py::arg("root"), py::arg("digest"), py::arg("of_all"),
           py::arg("proposes") = false)
      .def(
          "run",
          [](ExchangeHandle& self, double slice, double left) {
            return run_exchange(self, slice, Deadline::after(Deadline::Seconds{left}));
          },
          py::arg("slice"), py::arg("left"), R"(
Continues. None: complete. Else what to handle, the rank concerned, and more: "quiet" (nothing arrived in
`slice` seconds, a rank has hung up, or a call of many steps takes longer), "full" (that rank consumes nothing), "unmet" (look its inbox up),
"under_way" (the Transfer has not ended), "unregistered" (number of the receive), "other" (the labels that
arrived and that were expected), "length" (what arrived), "payload" (number of the receive, and the bytes that
belong there). left: seconds that posting may wait.)")
      .def_readonly("number", &ExchangeHandle::number,
                    "Of the call, among those that all ranks make; 0 for send_recv and for "
                    "calls that Python started.")
      .def_property_readonly(
          "culprit", [](const ExchangeHandle& self) { return self.exchange->culprit(); },
          "After run() or look() raised: the rank concerned, or None.")
      .def(
          "set_memory",
          [](const ExchangeHandle& self, std::size_t receive, const engine::Memory& memory) {
            self.exchange->set_memory(receive, memory);
          },
          py::arg("receive"), py::arg("memory"))
      .def(
          "memory",
          [](const ExchangeHandle& self, std::size_t receive) -> std::optional<engine::Memory> {
            const auto& memory = self.exchange->receive(receive).memory;
            if (!memory) return std::nullopt;
            return *memory;
          },
          py::arg("receive"), "Into which it goes; None: nobody has registered it.")
      .def(
          "place",
          [](const ExchangeHandle& self, std::size_t receive) {
            const Move& move = self.exchange->receive(receive);
            const auto [array, begin] = self.plan->place(move);
            const DType& dtype = self.plan->dtype();
            return std::tuple(array, begin, move.nbytes, dtype.name(), dtype.itemsize());
          },
          py::arg("receive"),
          "Of what SmallCollectives has begun: the array into which it goes, where there, its "
          "bytes, "
          "and its dtype with the item size: the array may be plain bytes.")
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
