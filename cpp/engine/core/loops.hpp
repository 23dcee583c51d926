// The benchmark loops over an Endpoint and a Peer in C++: the cost of zerohop without Python.
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/endpoint.hpp"

namespace zerohop::engine {

// One side of a ping-pong by write + notify. The ball lies in `source` here and in the peer's
// `target`.
struct PingPong {
  Endpoint& endpoint;
  Peer& peer;
  const Memory& source;
  const RemoteMemory& target;
  std::uint32_t slot;  // the same on both sides
  bool first;          // exactly one side serves
};

// Runs one round per element of `seconds`, which receives half of each round trip. Round n carries
// the value n; a different value throws ProtocolError. All of these loops throw TransferTimeout at
// the deadline, and the errors of their transfers.
void ping_pong(const PingPong& side, std::span<double> seconds, const Deadline& deadline);

// One side of a ping-pong by writes alone, as in perftest's ib_write_lat: each end waits for the
// completion of its write while the ball flies, then polls the last byte of the ball in memory.
struct MemoryPingPong {
  Peer& peer;
  const Memory& source;        // on the host and contiguous, as the inbox is
  const RemoteMemory& target;  // the peer's inbox
  const Memory& inbox;  // of the same size; its last byte is 0 before either side starts, and after
  bool first;
};

// Like the other one, but the last byte of the ball carries the round. Throws std::invalid_argument
// for memory that a CPU cannot poll.
void ping_pong(const MemoryPingPong& side, std::span<double> seconds, const Deadline& deadline);

// One side of a ping-pong by send and receive: sent from `source`, received into `inbox`.
struct MessagePingPong {
  Peer& peer;
  const Memory& source;
  const Memory& inbox;
  bool first;
};
void ping_pong(const MessagePingPong& side, std::span<double> seconds, const Deadline& deadline);

enum class StreamOperation { write, read, send, receive };

struct Stream {
  Peer& peer;
  const Memory& local;
  const RemoteMemory& remote;  // of write and read
  StreamOperation operation;
};

// How many transfers to post in all, and how many may be outstanding at once.
struct Pace {
  std::uint64_t times;
  std::uint64_t window;
};

// Seconds from the first post to the last completion.
double stream(const Stream& what, const Pace& pace, const Deadline& deadline);
double stream_many(Peer& peer, std::span<const Peer::Pair> pairs, const Pace& pace,
                   const Deadline& deadline);

// Seconds to post one write: each element is the mean over a batch of `posts`, excluding the wait
// for their completion.
void post_costs(Peer& peer, const Memory& source, const RemoteMemory& target, std::uint32_t posts,
                std::span<double> seconds, const Deadline& deadline);

// The same for notifications alone, put into `slot` of the peer's board.
void notify_costs(Peer& peer, std::uint32_t slot, std::uint32_t posts, std::span<double> seconds,
                  const Deadline& deadline);

// Seconds that a wait takes for a notification that has already arrived: each element is the mean
// over slots [first, first + count) of the own board.
void wait_costs(Endpoint& endpoint, std::uint32_t first, std::uint32_t count,
                std::span<double> seconds, const Deadline& deadline);

}  // namespace zerohop::engine
