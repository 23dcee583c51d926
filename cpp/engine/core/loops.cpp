#include "engine/core/loops.hpp"

#include <atomic>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/spin_wait.hpp"

namespace zerohop::engine {
namespace {

using Clock = Deadline::Clock;

constexpr std::uint32_t kStreamTag = 7;

double seconds_since(Clock::time_point begin) {
  return Deadline::Seconds(Clock::now() - begin).count();
}

void finish(const std::shared_ptr<Transfer>& transfer, const Deadline& deadline) {
  if (!transfer->wait(deadline)) {
    throw TransferTimeout("a benchmark loop did not end in time: raise its timeout");
  }
  transfer->result();  // throws what ended the transfer
}

void check_in_time(const Deadline& deadline) {
  if (deadline.passed()) {
    throw TransferTimeout("a benchmark loop did not end in time: raise its timeout");
  }
}

// Never 0, and different in consecutive rounds.
std::uint8_t mark_of(std::uint64_t round) { return static_cast<std::uint8_t>(1 + round % 255); }

// The byte that is written last: adapters write in address order, an assumption that all programs
// that poll memory make.
std::uint8_t& last_byte(const Memory& memory) {
  const Layout& layout = memory.layout();
  if (!memory.on_host() || !layout.is_contiguous() || layout.nbytes() == 0) {
    throw std::invalid_argument("memory that is polled is contiguous, on the host, and not empty");
  }
  return *reinterpret_cast<std::uint8_t*>(layout.address + layout.nbytes() - 1);
}

void poll_for(std::uint8_t& byte, std::uint8_t mark, const Deadline& deadline) {
  const std::atomic_ref<std::uint8_t> landing(byte);
  // perftest never gives way. A look takes a nanosecond; a yield, in which nothing is seen, takes
  // hundreds.
  constexpr int kLooksPerPause = 1024;
  constexpr int kPausesPerCheck = 4;
  SpinWait wait;
  // acquire: later reads of the ball see data at least as new as its mark
  for (int looks = 1; landing.load(std::memory_order_acquire) != mark; ++looks) {
    if (looks % kLooksPerPause != 0) continue;
    wait.pause();
    if (looks < kLooksPerPause * kPausesPerCheck) continue;
    check_in_time(deadline);
    looks = 0;
  }
}

template <typename Post>
double keep_under_way(Post post, const Pace& pace, const Deadline& deadline) {
  std::deque<std::shared_ptr<Transfer>> pending;
  const auto begin = Clock::now();
  for (std::uint64_t i = 0; i < pace.times; ++i) {
    if (pending.size() == pace.window) {
      finish(pending.front(), deadline);
      pending.pop_front();
    }
    pending.push_back(post());
  }
  for (const auto& transfer : pending) finish(transfer, deadline);
  return seconds_since(begin);
}

template <typename Post>
void batch_costs(Post post, std::uint32_t posts, std::span<double> seconds,
                 const Deadline& deadline) {
  std::vector<std::shared_ptr<Transfer>> transfers;
  transfers.reserve(posts);
  for (double& mean : seconds) {
    const auto begin = Clock::now();
    for (std::uint32_t i = 0; i < posts; ++i) transfers.push_back(post());
    mean = seconds_since(begin) / posts;
    for (const auto& transfer : transfers) finish(transfer, deadline);
    transfers.clear();
  }
}

std::shared_ptr<Transfer> post(const Stream& what) {
  const Peer::Pair pair{&what.local, &what.remote};
  switch (what.operation) {
    case StreamOperation::write: return what.peer.write({&pair, 1}, {});
    case StreamOperation::read: return what.peer.read({&pair, 1}, {});
    case StreamOperation::send: return what.peer.send(what.local, kStreamTag);
    case StreamOperation::receive: return what.peer.receive(what.local, kStreamTag);
  }
  throw std::invalid_argument("no such operation of a stream");
}

}  // namespace

void ping_pong(const PingPong& side, std::span<double> seconds, const Deadline& deadline) {
  const Peer::Pair pair{&side.source, &side.target};
  TransferOptions options;
  std::shared_ptr<Transfer> last;
  std::uint32_t round = 0;
  for (double& half : seconds) {
    const auto serve = [&] { last = side.peer.write({&pair, 1}, options); };
    options.notify = Notification{side.slot, ++round};
    const auto begin = Clock::now();
    if (side.first) serve();
    const auto got = side.endpoint.wait_notify(side.slot, 1, true, deadline);
    if (!side.first) serve();
    half = seconds_since(begin) / 2;
    if (got.second != round) {
      throw ProtocolError("round " + std::to_string(round) +
                          " of the ping-pong was answered with " + std::to_string(got.second));
    }
  }
  if (last) finish(last, deadline);
}

void ping_pong(const MemoryPingPong& side, std::span<double> seconds, const Deadline& deadline) {
  const Peer::Pair pair{&side.source, &side.target};
  std::uint8_t& ball = last_byte(side.source);
  std::uint8_t& landing = last_byte(side.inbox);
  std::uint64_t round = 0;
  auto begin = Clock::now();
  for (double& half : seconds) {
    const std::uint8_t mark = mark_of(++round);
    if (!side.first) poll_for(landing, mark, deadline);
    ball = mark;
    finish(side.peer.write({&pair, 1}, {}), deadline);  // the ball changes next
    if (side.first) poll_for(landing, mark, deadline);
    const auto end = Clock::now();  // once a round, as perftest
    half = Deadline::Seconds(end - begin).count() / 2;
    begin = end;
  }
  landing = 0;
}

void ping_pong(const MessagePingPong& side, std::span<double> seconds, const Deadline& deadline) {
  for (double& half : seconds) {
    const auto begin = Clock::now();
    const auto caught = side.peer.receive(side.inbox, kStreamTag);
    if (!side.first) finish(caught, deadline);
    const auto thrown = side.peer.send(side.source, kStreamTag);
    if (side.first) finish(caught, deadline);
    finish(thrown, deadline);
    half = seconds_since(begin) / 2;
  }
}

double stream(const Stream& what, const Pace& pace, const Deadline& deadline) {
  return keep_under_way([&] { return post(what); }, pace, deadline);
}

double stream_many(Peer& peer, std::span<const Peer::Pair> pairs, const Pace& pace,
                   const Deadline& deadline) {
  return keep_under_way([&] { return peer.write(pairs, {}); }, pace, deadline);
}

void post_costs(Peer& peer, const Memory& source, const RemoteMemory& target, std::uint32_t posts,
                std::span<double> seconds, const Deadline& deadline) {
  const Peer::Pair pair{&source, &target};
  batch_costs([&] { return peer.write({&pair, 1}, {}); }, posts, seconds, deadline);
}

void notify_costs(Peer& peer, std::uint32_t slot, std::uint32_t posts, std::span<double> seconds,
                  const Deadline& deadline) {
  const Notification notification{slot, 1};
  batch_costs([&] { return peer.notify(notification); }, posts, seconds, deadline);
}

void wait_costs(Endpoint& endpoint, std::uint32_t first, std::uint32_t count,
                std::span<double> seconds, const Deadline& deadline) {
  for (double& mean : seconds) {
    for (std::uint32_t i = 0; i < count; ++i) endpoint.notify({first + i, 1});
    const auto begin = Clock::now();
    for (std::uint32_t i = 0; i < count; ++i) endpoint.wait_notify(first + i, 1, true, deadline);
    mean = seconds_since(begin) / count;
  }
}

}  // namespace zerohop::engine
