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
  py::dict told;
  told["count"] = reading.count;
  told["sum"] = in_seconds(reading.sum);
  for (const auto& [name, share] : {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}}) {
    told[name] = reading.quantile(share) / 1e9;
  }
  py::list buckets;
  for (std::size_t i = 0; i < Histogram::kBuckets; ++i) {
    if (reading.counts[i] == 0) continue;
    const bool last = i + 1 == Histogram::kBuckets;
    const double bound = last ? HUGE_VAL : in_seconds(Histogram::bound(i));
    buckets.append(py::make_tuple(bound, reading.counts[i]));
  }
  told["buckets"] = buckets;
  return told;
}

// By operation, of those that have ended.
py::dict latencies_of(const RouteStats& stats) {
  constexpr const char* kNames[engine::kOperations] = {"write", "read", "atomic",
                                                       "send",  "recv", "notify"};
  py::dict told;
  for (std::size_t i = 0; i < engine::kOperations; ++i) {
    const auto reading = stats.latencies[i].read();
    if (reading.count > 0) told[kNames[i]] = latency_of(reading);
  }
  return told;
}

// Of one route.
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
  py::dict told;
  told["route"] = name.first;
  told["device"] = name.second;
  for (const auto& [text, operation] : kOperations) {
    told[text] = stats->operations[static_cast<std::size_t>(operation)].load();
  }
  for (const auto& [text, counter] : kCounters) told[text] = ((*stats).*counter).load();
  told["under_way"] = stats->under_way.load();
  told["latency"] = latencies_of(*stats);
  return told;
}

// Appends the row, with what the GPU has mapped that serves its route.
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

// Sets what went without a device, and adds it to the sums.
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
    py::dict told;
    told["peer"] = connection.peer;
    told["ended"] = connection.ended;
    told["routes"] = routes;
    connections.append(told);
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
Counters of all the Peers that this Endpoint has and had, those that are lost or closed too: a dict with "peers", how
many are connected now, "routes", a list as in Peer.stats(), of one dict for each route and device, added up
over all of them, and "connections", a list of dicts: one for each that is there, behind one for each of the last 64 names of
peers whose connections have ended, the oldest first: "peer", the name, "ended", None or a str that says why the last of that
name ended, and "routes", as before but for what is mapped. Also after close(). Reading them costs transfers nothing.

"faults" is a dict of how often each fault on purpose (zh.Faults) has happened, empty where none has; corrupt_found and
duplicate_found are packets of peers that were dropped. "nbytes_registered" is the memory that is registered with devices
for messages (message_slots, message_bytes): all Peers share it. 0 once closed.)");
}

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
that ended with an error; under_way: begun, and not ended yet; latency: how long those took that ended without an
error, as below; chunks_mapped, nbytes_mapped: of the peer's
GPU memory, for the p2p of this GPU, now. What the peer writes and reads here is in its own stats().

"latency": a dict by operation, "write", "read", "atomic", "send", "recv" and "notify" (a notification alone), of those
that there were: dicts of seconds from its posting to the moment at which this process saw it done (of a recv: until a
message came; of copies and notifications that the CPU makes in the call one of eight, as soon as there were 1024, for all); count, sum, p50, p90, p99 (percentiles, as if times lay evenly in their bucket), and buckets: pairs of a bound in
seconds and how many took that long or less, but longer than the next lower bound; two for each power of two from
64 ns to 68.7 s, without those that count none; the bound of what took longer is inf.

"rails": dicts with the counters that come first, for each device, its name ("device"), whether it carries
transfers now ("serves"), why it does not ("trouble", a str, empty if it does), and nbytes_registered, the memory that
is registered with the device for the results of atomics of this Peer.

"p2p" is there with a peer on the same host unless one of the two Endpoints has p2p=0, a dict: bytes_out and bytes_in, copied
without a device (and in the sums above); unanswered, how often the peer did not say in time where its
memory is, so that a device took over; and nbytes_page_locked, of the host's memory, for the copies of GPUs: by
this process for all its Peers, now.)");
}

}  // namespace zerohop::bindings
