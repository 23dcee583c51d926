// The channel between honest sides: every message once, in order, whatever the sockets do, and as
// an endpoint uses it: one thread progresses, any thread sends.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "engine/channel/socket.hpp"
#include "reported.hpp"
#include "wiretap.hpp"

namespace zerohop::testing {
namespace {

using Kind = ChannelFailure::Kind;
using State = Channel::State;

void ignore(std::span<const std::byte>) {}

Wiretap open_wire() {
  Wiretap wire;
  wire.run();
  REQUIRE(wire[kInitiator].state() == State::open);
  REQUIRE(wire[kAcceptor].state() == State::open);
  return wire;
}

TEST_CASE("messages sent while handshaking wait for the keys") {
  Wiretap wire;
  wire[kInitiator].send(to_bytes("early 1"));
  wire[kInitiator].send(to_bytes("early 2"));
  CHECK(wire[kInitiator].state() == State::handshaking);
  wire.run();
  wire[kInitiator].send(to_bytes("late"));
  wire.run();
  CHECK(wire.received(kAcceptor) == messages({"early 1", "early 2", "late"}));
}

TEST_CASE("a frame may arrive byte by byte") {
  auto [fd, tap] = socket_pair();
  const auto initiator = Channel::initiate(std::move(fd), {});
  auto [other, other_tap] = socket_pair();
  const auto acceptor = Channel::accept(std::move(other), {});
  initiator->send(to_bytes("slowly"));
  std::vector<Bytes> received;
  for (bool moved = true; moved;) {
    moved = false;
    for (const std::byte byte : take_bytes(tap.get())) {
      put_bytes(other_tap.get(), {byte});
      acceptor->progress([&](auto m) { received.emplace_back(m.begin(), m.end()); });
      moved = true;
    }
    for (const std::byte byte : take_bytes(other_tap.get())) {
      put_bytes(tap.get(), {byte});
      initiator->progress(ignore);
      moved = true;
    }
  }
  CHECK(received == messages({"slowly"}));
}

TEST_CASE("thousands of random messages through narrow sockets, both ways") {
  auto [one, two] = narrow_socket_pair();
  const std::array sides{Channel::initiate(std::move(one), {}),
                         Channel::accept(std::move(two), {})};
  std::mt19937 random(7);
  std::array<std::vector<Bytes>, 2> sent;
  std::array<std::size_t, 2> received{};
  const std::size_t count = 3000;
  std::size_t backlogs = 0;
  while (received[0] < count || received[1] < count) {
    for (std::size_t side = 0; side < 2; ++side) {
      if (sent[side].size() < count) {
        // Mostly small messages, some that span many frames' worth of socket buffer, a few at the
        // limit.
        const std::size_t limit = random() % 500 == 0 ? Channel::kMaxMessage : random() % 4000;
        Bytes message(limit == Channel::kMaxMessage ? limit : random() % (limit + 1));
        for (std::size_t i = 0; i < message.size(); i += 97) {
          message[i] = static_cast<std::byte>(random());
        }
        sides[side]->send(message);
        sent[side].push_back(std::move(message));
      }
      REQUIRE(sides[side]->progress([&](std::span<const std::byte> message) {
        REQUIRE(std::ranges::equal(message, sent[1 - side].at(received[side])));
        ++received[side];
      }));
      if (sides[side]->wants_write()) ++backlogs;
    }
  }
  CHECK(backlogs > count);  // else the sockets were not narrow
  CHECK_FALSE(sides[0]->wants_write());
  CHECK_FALSE(sides[1]->wants_write());
}

TEST_CASE("a message beyond the limit is refused and the channel stays open") {
  Wiretap wire = open_wire();
  CHECK_THROWS_AS(wire[kInitiator].send(Bytes(Channel::kMaxMessage + 1)), ProtocolError);
  wire[kInitiator].send(to_bytes("still here"));
  wire.run();
  CHECK(wire.received(kAcceptor) == messages({"still here"}));
}

// Sends until it throws; returns the number of bytes accepted.
std::size_t send_until_refused(Channel& channel) {
  const Bytes message(64 * 1024);
  std::size_t nbytes = 0;
  for (; nbytes <= 2 * Channel::kMaxQueued; nbytes += message.size()) {
    try {
      channel.send(message);
    } catch (const PeerLost&) {
      return nbytes;
    }
  }
  return nbytes;
}

TEST_CASE("a peer that does not read is lost once the queue is full") {
  SUBCASE("open") {
    Wiretap wire = open_wire();
    const std::size_t taken = send_until_refused(wire[kInitiator]);
    CHECK(taken > Channel::kMaxQueued / 2);
    CHECK(taken < Channel::kMaxQueued + (1 << 20));  // plus what the socket itself holds
    CHECK(wire.kind(kInitiator) == Kind::lost);
    CHECK(contains(wire.cause(kInitiator), "does not read"));
  }
  SUBCASE("handshaking") {
    auto [fd, silent] = socket_pair();
    const auto channel = Channel::initiate(std::move(fd), {});
    CHECK(send_until_refused(*channel) <= Channel::kMaxQueued);
    CHECK(channel->state() == State::closed);
  }
}

TEST_CASE("all the last words of a peer that left are delivered before its loss") {
  auto [one, two] = socket_pair();
  const int room = 1 << 20;  // more than one progress() reads, if the kernel grants it
  REQUIRE(::setsockopt(two.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) == 0);
  const auto initiator = Channel::initiate(std::move(one), {});
  auto acceptor = Channel::accept(std::move(two), {});
  for (int i = 0; i < 3; ++i) {
    initiator->progress(ignore);
    acceptor->progress(ignore);
  }
  REQUIRE(initiator->state() == State::open);
  std::size_t spoken = 0;
  for (const Bytes word(16 * 1024); !acceptor->wants_write(); ++spoken) acceptor->send(word);
  --spoken;  // the socket took only a part of the last
  acceptor.reset();
  initiator->send(to_bytes("into the void"));  // the socket refuses it; the loss shows in progress
  std::size_t heard = 0;
  std::size_t rounds = 1;
  while (initiator->progress([&](auto) { ++heard; })) REQUIRE(++rounds < 100);
  CHECK(heard == spoken);
  CHECK(rounds > 1);
  CHECK(initiator->failure()->kind == Kind::lost);
  CHECK_THROWS_AS(initiator->send(to_bytes("more")), PeerLost);
}

TEST_CASE("close ends both sides and keeps its reason") {
  Wiretap wire = open_wire();
  wire[kInitiator].close("the endpoint was closed");
  wire[kInitiator].close("again");
  CHECK(wire.cause(kInitiator) == "the endpoint was closed");
  CHECK_THROWS_WITH_AS(wire[kInitiator].send({}), "the endpoint was closed", PeerLost);
  CHECK_FALSE(wire[kInitiator].progress(ignore));
}

TEST_CASE("the sink may answer, and what it throws decides the channel's fate") {
  auto [one, two] = socket_pair();
  const auto initiator = Channel::initiate(std::move(one), {});
  const auto acceptor = Channel::accept(std::move(two), {});
  for (const char* text : {"1", "2", "3"}) initiator->send(to_bytes(text));
  std::vector<Bytes> answers;
  const auto listen = [&] {
    initiator->progress([&](auto m) { answers.emplace_back(m.begin(), m.end()); });
  };
  acceptor->progress(ignore);
  listen();

  struct Unrelated {};
  bool thrown = false;
  const auto echo_but_stumble_once = [&](std::span<const std::byte> message) {
    acceptor->send(message);
    if (!std::exchange(thrown, true)) throw Unrelated{};
  };
  CHECK_THROWS_AS(acceptor->progress(echo_but_stumble_once), Unrelated);
  CHECK(acceptor->progress(echo_but_stumble_once));  // the rest had been read already
  listen();
  CHECK(answers == messages({"1", "2", "3"}));

  initiator->send(to_bytes("nonsense"));
  CHECK_FALSE(acceptor->progress([](auto) { throw ProtocolError("no such message"); }));
  CHECK(acceptor->failure()->kind == Kind::protocol);
  CHECK(acceptor->failure()->message == "no such message");
}

TEST_CASE("each kind of failure raises its type with its code") {
  const auto raise = [](Kind kind) { ChannelFailure{kind, "x", ECONNRESET}.raise(); };
  CHECK(thrown_by<PeerLost>([&] { raise(Kind::lost); }).code() == ECONNRESET);
  CHECK_THROWS_AS(raise(Kind::protocol), ProtocolError);
  CHECK_THROWS_AS(raise(Kind::authentication), AuthenticationError);
}

TEST_CASE("a refused connection is a loss with its errno") {
  UniqueFd listener = engine::listen_tcp("127.0.0.1");
  const std::uint16_t port = engine::local_port(listener.get());
  listener.reset();
  const auto channel = Channel::initiate(engine::start_connect("127.0.0.1", port), {});
  pollfd wait{channel->fd(), POLLIN, 0};
  REQUIRE(::poll(&wait, 1, 5000) == 1);
  CHECK_FALSE(channel->progress(ignore));
  CHECK(channel->failure()->kind == Kind::lost);
  CHECK(channel->failure()->code == ECONNREFUSED);
}

// --- threads ---

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
