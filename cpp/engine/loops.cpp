#include "engine/loops.hpp"

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"

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
  std::vector<std::shared_ptr<Transfer>> transfers;
  transfers.reserve(posts);
  for (double& mean : seconds) {
    const auto begin = Clock::now();
    for (std::uint32_t i = 0; i < posts; ++i) transfers.push_back(peer.write({&pair, 1}, {}));
    mean = seconds_since(begin) / posts;
    for (const auto& transfer : transfers) finish(transfer, deadline);
    transfers.clear();
  }
}

}  // namespace zerohop::engine
