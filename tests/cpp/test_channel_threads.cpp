// The channel as an endpoint uses it: one thread progresses, any thread sends.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "base/deadline.hpp"
#include "wiretap.hpp"

namespace zerohop::testing {
namespace {

using State = Channel::State;

void ignore(std::span<const std::byte>) {}

// The loop of a progress thread: polls the channel and a wake-up descriptor for senders.
class Driver {
 public:
  explicit Driver(std::unique_ptr<Channel> channel, Channel::Sink sink)
      : channel_(std::move(channel)), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    ended_ = std::async(std::launch::async, [this, sink = std::move(sink)] { run(sink); });
  }
  ~Driver() {
    stop_ = true;
    wake();
    ended_.wait();
  }

  void send(std::span<const std::byte> message) {
    channel_->send(message);
    if (channel_->wants_write()) wake();
  }
  Channel& channel() { return *channel_; }

  // Whether the loop has ended by itself.
  bool ended_within(std::chrono::seconds limit) {
    return ended_.wait_for(limit) == std::future_status::ready;
  }

 private:
  void wake() { (void)::eventfd_write(wake_.get(), 1); }

  void run(const Channel::Sink& sink) {
    do {
      const short events = channel_->wants_write() ? POLLIN | POLLOUT : POLLIN;
      pollfd wait[] = {{channel_->fd(), events, 0}, {wake_.get(), POLLIN, 0}};
      (void)::poll(wait, 2, -1);
      eventfd_t count = 0;
      (void)::eventfd_read(wake_.get(), &count);
    } while (channel_->progress(sink) && !stop_);
  }

  std::unique_ptr<Channel> channel_;
  UniqueFd wake_;
  std::atomic<bool> stop_{false};
  std::future<void> ended_;
};

// Counts messages per sender and their order; waits with a deadline for all of them.
class Tally {
 public:
  static constexpr std::size_t kSenders = 3;
  static constexpr std::uint32_t kEach = 400;

  void take(std::span<const std::byte> message) {
    const auto sender = std::to_integer<std::size_t>(message[0]);
    const std::uint32_t sequence = std::to_integer<std::uint32_t>(message[1]) |
                                   std::to_integer<std::uint32_t>(message[2]) << 8;
    const std::lock_guard lock(mutex_);
    in_order_ = in_order_ && sequence == next_[sender];
    next_[sender] = sequence + 1;
    changed_.notify_all();
  }

  bool wait_for_all() {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, Deadline::after(Deadline::Seconds{60}).at(), [&] {
      return std::ranges::all_of(next_, [](std::uint32_t n) { return n == kEach; });
    }) && in_order_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::uint32_t, kSenders> next_{};
  bool in_order_ = true;
};

TEST_CASE("several threads send on both sides while two progress") {
  auto [one, two] = narrow_socket_pair();
  std::array<Tally, 2> tallies;
  std::array<Driver, 2> drivers{
      Driver(Channel::initiate(std::move(one), {}), [&](auto m) { tallies[0].take(m); }),
      Driver(Channel::accept(std::move(two), {}), [&](auto m) { tallies[1].take(m); })};
  std::vector<std::thread> senders;
  for (Driver& driver : drivers) {
    for (std::size_t sender = 0; sender < Tally::kSenders; ++sender) {
      senders.emplace_back([&driver, sender] {
        for (std::uint32_t i = 0; i < Tally::kEach; ++i) {
          Bytes message(3 + (i * 37) % 2000);
          message[0] = static_cast<std::byte>(sender);
          message[1] = static_cast<std::byte>(i);
          message[2] = static_cast<std::byte>(i >> 8);
          driver.send(message);
        }
      });
    }
  }
  for (std::thread& sender : senders) sender.join();
  CHECK(tallies[0].wait_for_all());
  CHECK(tallies[1].wait_for_all());
  CHECK(drivers[0].channel().state() == State::open);
}

TEST_CASE("close from any thread ends the waiting progress threads of both sides") {
  auto [one, two] = socket_pair();
  Driver initiator(Channel::initiate(std::move(one), {}), ignore);
  Driver acceptor(Channel::accept(std::move(two), {}), ignore);
  initiator.channel().close("done");
  CHECK(initiator.ended_within(std::chrono::seconds(20)));
  CHECK(acceptor.ended_within(std::chrono::seconds(20)));
  CHECK(acceptor.channel().failure()->kind == ChannelFailure::Kind::lost);
}

}  // namespace
}  // namespace zerohop::testing
