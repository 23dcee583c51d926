// The benchmark's loops, run without the GIL. Not part of the public API: zerohop.bench calls them.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/host_memory.hpp"
#include "bindings/convert.hpp"
#include "bindings/gil.hpp"
#include "bindings/handles.hpp"
#include "bindings/topics.hpp"
#include "engine/core/loops.hpp"
#include "engine/core/tcp_loops.hpp"

namespace zerohop::bindings {
namespace {

using engine::Endpoint;
using engine::Memory;
using engine::Peer;
using engine::RemoteMemory;
using engine::StreamOperation;
using engine::TcpLoops;
using Samples = std::vector<double>;
using ByteArray = py::array_t<std::uint8_t, py::array::c_style>;

// The same wait policy as the Endpoint's.
TcpLoops tcp_loops(const Endpoint& endpoint, int fd) { return {fd, endpoint.spin()}; }

std::span<std::byte> bytes_of(ByteArray& array) {
  return {reinterpret_cast<std::byte*>(array.mutable_data()),
          static_cast<std::size_t>(array.nbytes())};
}

StreamOperation parse_operation(const std::string& name) {
  static constexpr std::array<std::pair<const char*, StreamOperation>, 4> kNames{{
      {"write", StreamOperation::write},
      {"read", StreamOperation::read},
      {"send", StreamOperation::send},
      {"recv", StreamOperation::receive},
  }};
  for (const auto& [known, operation] : kNames) {
    if (name == known) return operation;
  }
  throw py::value_error("operation is write, read, send or recv, not '" + name + "'");
}

Samples bench_ping_pong(Endpoint& endpoint, const PeerHandle& peer, const Memory& source,
                        const RemoteMemory& target, std::uint32_t slot, std::size_t rounds,
                        bool first, double timeout) {
  const GilReleased released;
  Samples seconds(rounds);
  engine::ping_pong({endpoint, *peer.peer, source, target, slot, first}, seconds, within(timeout));
  return seconds;
}

Samples memory_ping_pong(const PeerHandle& peer, const Memory& source, const RemoteMemory& target,
                         const Memory& inbox, std::size_t rounds, bool first, double timeout) {
  const GilReleased released;
  Samples seconds(rounds);
  engine::ping_pong({*peer.peer, source, target, inbox, first}, seconds, within(timeout));
  return seconds;
}

double bench_stream(const PeerHandle& peer, const std::string& operation, const Memory& local,
                    const RemoteMemory& remote, std::uint64_t times, std::uint64_t window,
                    double timeout) {
  const StreamOperation parsed = parse_operation(operation);
  const GilReleased released;
  return engine::stream({*peer.peer, local, remote, parsed}, {times, window}, within(timeout));
}

double write_many(const PeerHandle& peer,
                  const std::vector<std::pair<const Memory*, const RemoteMemory*>>& arrays,
                  std::uint64_t times, std::uint64_t window, double timeout) {
  std::vector<Peer::Pair> pairs;
  for (const auto& [local, remote] : arrays) pairs.push_back({local, remote});
  const GilReleased released;
  return engine::stream_many(*peer.peer, pairs, {times, window}, within(timeout));
}

Samples post(const PeerHandle& peer, const Memory& source, const RemoteMemory& target,
             std::uint32_t posts, std::size_t batches, double timeout) {
  const GilReleased released;
  Samples seconds(batches);
  engine::post_costs(*peer.peer, source, target, posts, seconds, within(timeout));
  return seconds;
}

Samples message_ping_pong(const PeerHandle& peer, const Memory& source, const Memory& inbox,
                          std::size_t rounds, bool first, double timeout) {
  const GilReleased released;
  Samples seconds(rounds);
  engine::ping_pong(engine::MessagePingPong{*peer.peer, source, inbox, first}, seconds,
                    within(timeout));
  return seconds;
}

Samples notify(const PeerHandle& peer, std::uint32_t slot, std::uint32_t posts, std::size_t batches,
               double timeout) {
  const GilReleased released;
  Samples seconds(batches);
  engine::notify_costs(*peer.peer, slot, posts, seconds, within(timeout));
  return seconds;
}

Samples bench_wait_notify(Endpoint& endpoint, std::uint32_t first, std::uint32_t count,
                          std::size_t batches, double timeout) {
  const GilReleased released;
  Samples seconds(batches);
  engine::wait_costs(endpoint, first, count, seconds, within(timeout));
  return seconds;
}

Samples tcp_ping_pong(const Endpoint& endpoint, int fd, ByteArray ball, std::size_t rounds,
                      bool first, double timeout) {
  const auto bytes = bytes_of(ball);
  const GilReleased released;
  Samples seconds(rounds);
  tcp_loops(endpoint, fd).ping_pong(bytes, seconds, first, within(timeout));
  return seconds;
}

double tcp_stream(const Endpoint& endpoint, int fd, ByteArray message, std::size_t times,
                  bool outgoing, double timeout) {
  const auto bytes = bytes_of(message);
  const GilReleased released;
  const auto begin = Deadline::Clock::now();
  if (outgoing) {
    tcp_loops(endpoint, fd).stream_out(bytes, times, within(timeout));
  } else {
    tcp_loops(endpoint, fd).stream_in(bytes, times, within(timeout));
  }
  return Deadline::Seconds(Deadline::Clock::now() - begin).count();
}

}  // namespace

void bind_bench(py::module_& m) {
  using py::arg;
  m.def("available_memory", &available_memory, arg("root") = "",
        "Bytes that new allocations may take, by /proc and the control group below `root`.");
  m.def("bench_ping_pong", &bench_ping_pong, arg("endpoint"), arg("peer"), arg("source"),
        arg("target"), arg("slot"), arg("rounds"), arg("first"), arg("timeout"),
        "Seconds of each half round trip of write + notify.");
  m.def("bench_memory_ping_pong", &memory_ping_pong, arg("peer"), arg("source"), arg("target"),
        arg("inbox"), arg("rounds"), arg("first"), arg("timeout"),
        "Seconds of each half round trip of a write alone, whose last byte is polled in `inbox`.");
  m.def("bench_stream", &bench_stream, arg("peer"), arg("operation"), arg("local"), arg("remote"),
        arg("times"), arg("window"), arg("timeout"),
        "Seconds of `times` writes, reads, sends or receives with `window` in flight.");
  m.def("bench_write_many", &write_many, arg("peer"), arg("pairs"), arg("times"), arg("window"),
        arg("timeout"), "Seconds of `times` write_many with `window` in flight.");
  m.def("bench_post", &post, arg("peer"), arg("source"), arg("target"), arg("posts"),
        arg("batches"), arg("timeout"),
        "Seconds per post of a write, the mean of each batch of `posts`.");
  m.def("bench_message_ping_pong", &message_ping_pong, arg("peer"), arg("source"), arg("inbox"),
        arg("rounds"), arg("first"), arg("timeout"),
        "Seconds of each half round trip of send + recv.");
  m.def("bench_notify", &notify, arg("peer"), arg("slot"), arg("posts"), arg("batches"),
        arg("timeout"), "Seconds per post of a notification, the mean of each batch of `posts`.");
  m.def("bench_wait_notify", &bench_wait_notify, arg("endpoint"), arg("first"), arg("count"),
        arg("batches"), arg("timeout"),
        "Seconds per wait for a notification already there, the mean of each batch of `count`.");
  m.def("bench_tcp_ping_pong", &tcp_ping_pong, arg("endpoint"), arg("fd"), arg("ball").noconvert(),
        arg("rounds"), arg("first"), arg("timeout"),
        "Seconds of each half round trip on a bare TCP socket.");
  m.def("bench_tcp_stream", &tcp_stream, arg("endpoint"), arg("fd"), arg("message").noconvert(),
        arg("times"), arg("outgoing"), arg("timeout"),
        "Seconds of `times` messages one way on a TCP socket.");
}

}  // namespace zerohop::bindings
