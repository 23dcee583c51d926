#include "rdma/loops.hpp"

#include <array>
#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "driver/verbs_call.hpp"

namespace zerohop::rdma {
namespace {

using Clock = Deadline::Clock;

constexpr int kLooks = 4096;  // polls between two reads of the clock

double seconds_since(Clock::time_point begin) {
  return Deadline::Seconds(Clock::now() - begin).count();
}

void check_in_time(const Deadline& deadline) {
  if (deadline.passed()) {
    throw TransferTimeout("a benchmark loop did not end in time: raise its timeout");
  }
}

void post(QueuePair& queue_pair, const ibv_send_wr& request) {
  ibv_send_wr posted = request;
  posted.next = nullptr;
  ibv_send_wr* bad = nullptr;
  driver::check_errno(queue_pair.post_send(posted, &bad), "ibv_post_send");
}

void check(const ibv_wc& completion) {
  if (completion.status == IBV_WC_SUCCESS) return;
  throw VerbsError(std::string(completion_status_name(completion.status)) + ": " +
                       completion_status_help(completion.status),
                   completion.status);
}

// Returns at least one; at most as many as one poll takes.
std::uint64_t poll(CompletionQueue& queue, const Deadline& deadline) {
  std::array<ibv_wc, 16> taken;
  int count = 0;
  for (int left = kLooks; (count = queue.poll(taken)) == 0; --left) {
    if (left > 0) continue;
    check_in_time(deadline);
    left = kLooks;
  }
  if (count < 0) driver::throw_verbs_error("ibv_poll_cq", EIO);
  for (int i = 0; i < count; ++i) check(taken[static_cast<std::size_t>(i)]);
  return static_cast<std::uint64_t>(count);
}

// Never 0, and different in consecutive rounds.
std::uint8_t mark_of(std::uint64_t round) { return static_cast<std::uint8_t>(1 + round % 255); }

// The device writes the landing, and only the written bytes show it. soft0 is a thread of this
// process, whose store ThreadSanitizer sees. acquire: later reads of the ball see data at least as
// new as its mark.
__attribute__((no_sanitize("thread"), noinline)) bool holds(const std::uint8_t& landing,
                                                            std::uint8_t mark) noexcept {
  return __atomic_load_n(&landing, __ATOMIC_ACQUIRE) == mark;
}

__attribute__((no_sanitize("thread"), noinline)) void clear(std::uint8_t& landing) noexcept {
  __atomic_store_n(&landing, 0, __ATOMIC_RELAXED);
}

void poll_for(const std::uint8_t& landing, std::uint8_t mark, const Deadline& deadline) {
  for (int left = kLooks; !holds(landing, mark); --left) {
    if (left > 0) continue;
    check_in_time(deadline);
    left = kLooks;
  }
}

}  // namespace

void post_and_poll(QueuePair& queue_pair, CompletionQueue& queue, const ibv_send_wr& request,
                   std::span<double> seconds, const Deadline& deadline) {
  for (double& each : seconds) {
    const auto begin = Clock::now();
    post(queue_pair, request);
    poll(queue, deadline);
    each = seconds_since(begin);
  }
}

void ping_pong(const WritePingPong& side, std::span<double> seconds, const Deadline& deadline) {
  std::uint64_t round = 0;
  for (double& half : seconds) {
    const std::uint8_t mark = mark_of(++round);
    const auto begin = Clock::now();
    if (!side.first) poll_for(side.landing, mark, deadline);
    side.ball = mark;
    post(side.queue_pair, side.request);
    if (side.first) poll_for(side.landing, mark, deadline);
    poll(side.queue, deadline);  // the ball changes next
    half = seconds_since(begin) / 2;
  }
  clear(side.landing);
}

double keep_posted(std::span<QueuePair* const> queue_pairs, CompletionQueue& queue,
                   const ibv_send_wr& request, std::uint64_t times, std::uint64_t window,
                   const Deadline& deadline) {
  const auto begin = Clock::now();
  std::uint64_t posted = 0;
  for (std::uint64_t done = 0; done < times;) {
    for (; posted < times && posted - done < window; ++posted) {
      post(*queue_pairs[posted % queue_pairs.size()], request);
    }
    done += poll(queue, deadline);
  }
  return seconds_since(begin);
}

double keep_receiving(QueuePair& queue_pair, CompletionQueue& queue, ibv_recv_wr receive,
                      std::uint64_t times, std::uint64_t posted, const Deadline& deadline) {
  receive.next = nullptr;
  const auto begin = Clock::now();
  for (std::uint64_t done = 0; done < times;) {
    const std::uint64_t came = poll(queue, deadline);
    done += came;
    for (std::uint64_t i = 0; i < came && posted < times; ++i, ++posted) {
      ibv_recv_wr* bad = nullptr;
      driver::check_errno(queue_pair.post_receive(receive, &bad), "ibv_post_recv");
    }
  }
  return seconds_since(begin);
}

}  // namespace zerohop::rdma
