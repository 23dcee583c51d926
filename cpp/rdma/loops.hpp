// The benchmark loops on bare queue pairs: the cost of a device without the engine above it.
#pragma once

#include <cstdint>
#include <span>

#include "base/deadline.hpp"
#include "rdma/queue_pair.hpp"

namespace zerohop::rdma {

// All of these loops poll without a pause, as perftest does. They throw TransferTimeout at the
// deadline, and VerbsError for a request that is refused or fails. `request` must be complete
// except for its next.

// One request at a time, per element of `seconds`: each receives the time from post to completion.
void post_and_poll(QueuePair& queue_pair, CompletionQueue& queue, const ibv_send_wr& request,
                   std::span<double> seconds, const Deadline& deadline);

// One side of a ping-pong by writes: `request` carries the ball to the other side's landing. The
// last byte of both carries the round. Both are 0 before either side starts, and the landing after.
struct WritePingPong {
  QueuePair& queue_pair;
  CompletionQueue& queue;
  const ibv_send_wr& request;
  std::uint8_t& ball;
  std::uint8_t& landing;
  bool first;
};
void ping_pong(const WritePingPong& side, std::span<double> seconds, const Deadline& deadline);

// Seconds of `times` requests in all, in turn on queue pairs that share `queue`, `window` posted.
double keep_posted(std::span<QueuePair* const> queue_pairs, CompletionQueue& queue,
                   const ibv_send_wr& request, std::uint64_t times, std::uint64_t window,
                   const Deadline& deadline);

// Seconds until `times` messages have arrived; `posted` receives are already posted.
double keep_receiving(QueuePair& queue_pair, CompletionQueue& queue, ibv_recv_wr receive,
                      std::uint64_t times, std::uint64_t posted, const Deadline& deadline);

}  // namespace zerohop::rdma
