#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/histogram.hpp"
#include "bindings/bind_endpoint.hpp"
#include "bindings/bind_peer.hpp"
#include "gpu/page_lock.hpp"

namespace zerohop::bindings {
namespace {

using engine::GpuMappings;
using engine::Operation;
using engine::Peer;
using engine::RouteStats;

double in_seconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; }

py::dict latency_of(const Histogram::Reading& reading) {
  py::dict dict;
  dict["count"] = reading.count;
  dict["sum"] = in_seconds(reading.sum);
  for (const auto& [name, share] : {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}}) {
    dict[name] = reading.quantile(share) / 1e9;
  }
  py::list buckets;
  for (std::size_t i = 0; i < Histogram::kBuckets; ++i) {
    if (reading.counts[i] == 0) continue;
    const bool last = i + 1 == Histogram::kBuckets;
    const double bound = last ? HUGE_VAL : in_seconds(Histogram::bound(i));
    buckets.append(py::make_tuple(bound, reading.counts[i]));
  }
  dict["buckets"] = buckets;
  return dict;
}

// By operation, for operations that have ended.
py::dict latencies_of(const RouteStats& stats) {
  constexpr const char* kNames[engine::kOperations] = {"write", "read", "atomic",
                                                       "send",  "recv", "notify"};
  py::dict dict;
  for (std::size_t i = 0; i < engine::kOperations; ++i) {
    const auto reading = stats.latencies[i].read();
    if (reading.count > 0) dict[kNames[i]] = latency_of(reading);
  }
  return dict;
}

// One route.
py::dict row_of(const engine::RouteBook::Row& row) {
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
  py::dict dict;
  dict["route"] = name.first;
  dict["device"] = name.second;
  for (const auto& [text, operation] : kOperations) {
    dict[text] = stats->operations[static_cast<std::size_t>(operation)].load();
  }
  for (const auto& [text, counter] : kCounters) dict[text] = ((*stats).*counter).load();
  dict["under_way"] = stats->under_way.load();
  dict["latency"] = latencies_of(*stats);
  return dict;
}

// Appends the row, with what is mapped of the GPU that serves its route.
void add_mapped(py::list& routes, py::dict row, const engine::RouteBook::Name& name,
                const std::map<int, GpuMappings::Mapped>& mapped) {
  GpuMappings::Mapped here;
  for (const auto& [ordinal, chunks] : mapped) {
    if (name == std::pair<std::string, std::string>{"p2p", "cuda:" + std::to_string(ordinal)}) {
      here = chunks;
    }
  }
  row["chunks_mapped"] = here.chunks;
  row["nbytes_mapped"] = here.nbytes;
  routes.append(std::move(row));
}

py::list routes_of(const Peer& peer) {
  const auto mapped = peer.mapped();
  py::list routes;
  for (const auto& row : peer.route_stats()) add_mapped(routes, row_of(row), row.first, mapped);
  return routes;
}

// Sets the sums over all rails, and the counters of each.
void add_rails(py::dict& all, const Peer& peer) {
  using engine::RailStats;
  using Counter = std::atomic<std::uint64_t> RailStats::*;
  constexpr std::pair<const char*, Counter> kCounters[] = {
      {"work_requests", &RailStats::work_requests},
      {"doorbells", &RailStats::doorbells},
      {"bytes_out", &RailStats::bytes_out},
      {"bytes_in", &RailStats::bytes_in},
      {"messages_in", &RailStats::messages_in},
      {"notifications_in", &RailStats::notifications_in},
      {"queue_full", &RailStats::queue_full},
      {"queue_pair_errors", &RailStats::broken}};
  const auto reports = peer.rails().reports();
  py::list rails;
  for (const auto& report : reports) {
    py::dict rail;
    rail["device"] = report.device;
    rail["serves"] = report.trouble.empty();
    rail["trouble"] = report.trouble;
    rail["nbytes_registered"] = report.registered_nbytes;
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

// Sets the counters of copies without a device, and adds them to the sums.
void add_copies(py::dict& all, const Peer& peer) {
  const auto& neighbour = peer.neighbour();
  if (!neighbour) return;
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
  self.endpoint->check_process();
  py::dict all;
  add_rails(all, *self.peer);
  add_copies(all, *self.peer);
  all["routes"] = routes_of(*self.peer);
  return all;
}

py::list connections_of(const engine::RouteBooks::Reading& reading) {
  py::list connections;
  for (const auto& connection : reading.connections) {
    py::list routes;
    for (const auto& row : connection.sums) routes.append(row_of(row));
    py::dict dict;
    dict["peer"] = connection.peer;
    dict["ended"] = connection.ended;
    dict["routes"] = routes;
    connections.append(dict);
  }
  return connections;
}

py::dict endpoint_stats(const engine::Endpoint& self) {
  const auto peers = self.peers();
  std::map<int, GpuMappings::Mapped> mapped;
  for (const auto& peer : peers) {
    for (const auto& [ordinal, here] : peer->mapped()) {
      mapped[ordinal].chunks += here.chunks;
      mapped[ordinal].nbytes += here.nbytes;
    }
  }
  const auto reading = self.route_stats();
  py::list routes;
  for (const auto& row : reading.sums) add_mapped(routes, row_of(row), row.first, mapped);
  py::dict all;
  all["peers"] = peers.size();
  all["routes"] = routes;
  all["connections"] = connections_of(reading);
  all["faults"] = self.fault_counts();
  all["nbytes_registered"] = self.message_nbytes();
  return all;
}

}  // namespace

void bind_endpoint_stats(EndpointClass& type) {
  type.def("stats", &endpoint_stats, R"(
Counters of all current and former Peers of this Endpoint, lost and closed ones included: a dict with "peers",
the number now connected; "routes", a list as in Peer.stats(), with one dict for each route and device, summed
over all Peers; and "connections", a list of dicts: first one for each of the last 64 names of peers whose
connections have ended, oldest first, then one for each current connection. Their keys: "peer", the name;
"ended", None or a str with the reason why the last connection of that name ended; and "routes", as before but
without what is mapped. Also available after close(). Reading them does not slow transfers.

"faults" is a dict with the number of times each injected fault (zh.Faults) has happened, empty if none has;
corrupt_found and duplicate_found are packets of peers that were dropped. "nbytes_registered" is the memory registered with
devices for messages (message_slots, message_bytes), which all Peers share; 0 once closed.)");
}

void bind_stats(PeerClass& type) {
  type.def("stats", &stats, R"(
Counters since the connection was made, as a dict of ints, and two lists, "routes" and "rails". Reading them
does not slow transfers. Later versions may add keys; the present ones stay.

work_requests, doorbells: work requests posted to the device, and doorbells rung. bytes_out, bytes_in: of the
writes and sends, and of the reads, that were posted. messages_in, notifications_in: received from the peer
through the device. queue_full: how often a call waited for room. queue_pair_errors: how often the queue pair
had to be replaced.

"routes": what this process began, a dict for each route and device that it may take or has taken: "route" and
"device" (strs, as in a Route: p2p over cpu is between host memories, p2p over cuda:0 is what that GPU of this
process copies); writes, reads, atomics, sends, recvs: how many were begun; notifications_out: put after data,
or alone; bytes_out (of writes and sends) and bytes_in (of reads, and of recvs that have ended); failures:
ended with an error; under_way: begun and not ended; latency: durations of those that ended without an error,
as below; chunks_mapped, nbytes_mapped: of the peer's GPU memory, for the p2p of this GPU, now. What the peer
writes and reads here is in its own stats().

"latency": a dict by operation, "write", "read", "atomic", "send", "recv" and "notify" (a notification alone),
of those that occurred. Each is a dict in seconds, from posting to the moment at which this process saw it done
(for a recv: until a message arrived). Copies and notifications that the CPU makes within the call are sampled,
one in eight, after the first 1024. Keys: count, sum, p50, p90, p99 (percentiles, assuming an even spread
within each bucket), and buckets: pairs of an upper bound in seconds (inclusive) and the count above the next
lower bound; two buckets for each power of two from 64 ns to 68.7 s, without empty ones; the bound of the last
is inf.

"rails": a dict for each device, with the counters described first and: "device", its name; "serves", whether
it carries transfers now; "trouble", why it does not (a str, empty if it does); and nbytes_registered, the memory
registered with the device for results of atomics of this Peer.

"p2p", a dict, exists for a peer on the same host unless one of the two Endpoints has p2p=0: bytes_out and
bytes_in, copied without a device (and included in the sums above); unanswered, how often the peer did not
report in time where its memory is, so that a device took over; and nbytes_page_locked, host memory page-locked
now for copies of GPUs, by this process for all its Peers.)");
}

}  // namespace zerohop::bindings
