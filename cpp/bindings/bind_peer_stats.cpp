#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <map>
#include <string>
#include <utility>

#include "bindings/bind_peer.hpp"
#include "gpu/page_lock.hpp"

namespace zerohop::bindings {
namespace {

using engine::GpuWindows;
using engine::Operation;
using engine::Peer;
using engine::RouteStats;

// Of one route; "chunks" and "mapped_nbytes" are of the GPU that serves it.
py::dict row_of(const engine::RouteBook::Row& row,
                const std::map<int, GpuWindows::Mapped>& mapped) {
  constexpr std::pair<const char*, Operation> kOperations[] = {{"writes", Operation::write},
                                                               {"reads", Operation::read},
                                                               {"atomics", Operation::atomic},
                                                               {"sends", Operation::send},
                                                               {"recvs", Operation::recv}};
  constexpr std::pair<const char*, RouteStats::Counter RouteStats::*> kCounters[] = {
      {"notifications_out", &RouteStats::notifications},
      {"bytes_out", &RouteStats::bytes_out},
      {"bytes_in", &RouteStats::bytes_in},
      {"failures", &RouteStats::failures}};
  const auto& [name, stats] = row;
  py::dict told;
  told["route"] = name.first;
  told["device"] = name.second;
  for (const auto& [text, operation] : kOperations) {
    told[text] = stats->operations[static_cast<std::size_t>(operation)].load();
  }
  for (const auto& [text, counter] : kCounters) told[text] = ((*stats).*counter).load();
  told["under_way"] = stats->under_way.load();
  GpuWindows::Mapped here;
  for (const auto& [ordinal, chunks] : mapped) {
    if (name == std::pair<std::string, std::string>{"p2p", "cuda:" + std::to_string(ordinal)}) {
      here = chunks;
    }
  }
  told["chunks_mapped"] = here.chunks;
  told["nbytes_mapped"] = here.nbytes;
  return told;
}

py::list routes_of(const Peer& peer) {
  std::map<int, GpuWindows::Mapped> mapped;
  if (const engine::Neighbour* neighbour = peer.neighbour()) mapped = neighbour->mapped();
  py::list routes;
  for (const auto& row : peer.route_stats()) routes.append(row_of(row, mapped));
  return routes;
}

// Sets the sums over all rails, and those of each.
void add_rails(py::dict& all, const Peer& peer) {
  using engine::PathStats;
  using Counter = std::atomic<std::uint64_t> PathStats::*;
  constexpr std::pair<const char*, Counter> kCounters[] = {
      {"work_requests", &PathStats::work_requests},
      {"doorbells", &PathStats::doorbells},
      {"bytes_out", &PathStats::bytes_out},
      {"bytes_in", &PathStats::bytes_in},
      {"messages_in", &PathStats::messages_in},
      {"notifications_in", &PathStats::notifications_in},
      {"queue_full", &PathStats::queue_full},
      {"queue_pair_errors", &PathStats::broken}};
  const auto reports = peer.rails();
  py::list rails;
  for (const auto& report : reports) {
    py::dict rail;
    rail["device"] = report.device;
    rail["serves"] = report.trouble.empty();
    rail["trouble"] = report.trouble;
    rails.append(rail);
  }
  for (const auto& [name, counter] : kCounters) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < reports.size(); ++i) {
      const std::uint64_t count = reports[i].stats ? (reports[i].stats->*counter).load() : 0;
      rails[i][name] = count;
      sum += count;
    }
    all[name] = sum;
  }
  all["rails"] = rails;
}

// Sets what went without a device, and adds it to the sums.
void add_copies(py::dict& all, const Peer& peer) {
  const engine::Neighbour* neighbour = peer.neighbour();
  if (neighbour == nullptr) return;
  std::uint64_t out = 0;
  std::uint64_t in = 0;
  for (const auto& [name, stats] : peer.route_stats()) {
    if (name.first != "p2p") continue;
    out += stats->bytes_out.load();
    in += stats->bytes_in.load();
  }
  py::dict copies;
  copies["bytes_out"] = out;
  copies["bytes_in"] = in;
  copies["unanswered"] = neighbour->unanswered();
  copies["nbytes_page_locked"] = gpu::PageLock::all_nbytes();
  all["bytes_out"] = all["bytes_out"] + copies["bytes_out"];
  all["bytes_in"] = all["bytes_in"] + copies["bytes_in"];
  all["p2p"] = copies;
}

py::dict stats(const PeerHandle& self) {
  py::dict all;
  add_rails(all, *self.peer);
  add_copies(all, *self.peer);
  all["routes"] = routes_of(*self.peer);
  return all;
}

}  // namespace

void bind_stats(PeerClass& type) {
  type.def("stats", &stats, R"(
Counters since the connection was made, as a dict of ints, and two lists, "routes" and "rails". Reading them
costs transfers nothing. Keys may come to be, those that are here stay as they are.

work_requests, doorbells: posted to the device, and how often it was told. bytes_out, bytes_in: of the
writes and sends, and of the reads, that were posted. messages_in, notifications_in: that came from the
peer over the device. queue_full: how often a call waited for room. queue_pair_errors: how often it had to be
replaced.

"routes": what this process began, a dict for each route and device that it may take or has taken: "route"
and "device" (strs, as of a Route: p2p over cpu is between host memories, p2p over cuda:0 is what that GPU of this
process copies); writes, reads, atomics, sends, recvs: how many were begun; notifications_out: put behind
data, or alone; bytes_out (of writes and sends) and bytes_in (of reads, and of recvs that have ended); failures:
that ended with an error; under_way: begun, and not ended yet; chunks_mapped, nbytes_mapped: of the peer's
GPU memory, for the p2p of this GPU, now. What the peer writes and reads here is in its own stats().

"rails": dicts with the counters that come first, for each device, its name ("device"), whether it carries
transfers now ("serves") and why it does not ("trouble", a str, empty if it does).

"p2p" is there with a peer on the same host unless one of the two Endpoints has p2p=0, a dict: bytes_out and bytes_in, copied
without a device (and in the sums above); unanswered, how often the peer did not say in time where its
memory is, so that a device took over; and nbytes_page_locked, of the host's memory, for the copies of GPUs: by
this process for all its Peers, now.)");
}

}  // namespace zerohop::bindings
