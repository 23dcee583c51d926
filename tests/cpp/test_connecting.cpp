// Connecting when one side lacks resources: both sides get a clear error soon.
#include <doctest/doctest.h>
#include <poll.h>

#include <memory>
#include <new>
#include <string>
#include <variant>

#include "base/acceptor.hpp"
#include "base/error.hpp"
#include "couple.hpp"
#include "engine/channel/socket.hpp"
#include "station.hpp"

namespace zerohop::testing {
namespace {

using namespace zerohop::engine;

constexpr double kSoon = 5.0;  // seconds: the promise

void out_of_locked_memory() { throw RegistrationError("no more memory may be locked"); }
void out_of_memory() { throw std::bad_alloc(); }

// Answers the first Hello with a Bye, and never dials.
class Yielder {
 public:
  Yielder() : listener_(listen_tcp("127.0.0.1")) {
    address.host = "127.0.0.1";
    address.port = local_port(listener_.get());
    address.name = "yielder";
  }

  void answer_one(const ControlMessage& message) {
    const Deadline deadline = soon();
    await(listener_.get(), deadline);
    channel_ = Channel::accept(accept_connection(listener_.get()), address.secret);
    bool greeted = false;
    while (!greeted) {
      await(channel_->fd(), deadline);
      REQUIRE(channel_->progress([&](std::span<const std::byte> bytes) {
        greeted = std::holds_alternative<Hello>(decode_control_message(bytes));
      }));
    }
    channel_->send(encode(message));
  }

  Address address = EndpointKey().address();

 private:
  static void await(int fd, const Deadline& deadline) {
    pollfd wait{fd, POLLIN, 0};
    REQUIRE(::poll(&wait, 1, deadline.remaining_ms()) == 1);
  }

  UniqueFd listener_;
  std::unique_ptr<Channel> channel_;
};

TEST_CASE("an acceptor that cannot make a peer sends the dialler the reason") {
  Station acceptor;
  Endpoint dialler(options("dialler"));
  acceptor.broken = &out_of_locked_memory;
  std::string refusal;
  try {
    (void)dialler.connect(acceptor.address.to_bytes(), within(kSoon));
  } catch (const PeerLost& lost) {
    refusal = lost.what();
  }
  CHECK(refusal.find("refused the connection") != std::string::npos);
  CHECK(refusal.find("no more memory may be locked") != std::string::npos);

  acceptor.broken = &out_of_memory;
  CHECK_THROWS_AS((void)dialler.connect(acceptor.address.to_bytes(), within(kSoon)), PeerLost);

  acceptor.broken = nullptr;
  CHECK(dialler.connect(acceptor.address.to_bytes(), soon())->alive());
}

TEST_CASE("a dial that fails before its first byte ends the attempt, and only that") {
  Station dialler;
  Endpoint acceptor(options("acceptor"));
  dialler.broken = &out_of_locked_memory;
  const std::string failure = dialler.failure(dialler.control->connect(acceptor.address()), kSoon);
  CHECK(failure.find("no more memory may be locked") != std::string::npos);

  dialler.broken = nullptr;
  const auto attempt = dialler.control->connect(acceptor.address());
  REQUIRE(dialler.poller().wait([&] { return attempt->done.is(); }, soon()));
  CHECK(attempt->peer != nullptr);
}

TEST_CASE("dialling again after giving way may fail at once: every caller that waits learns it") {
  Station dialler;
  Yielder yielder;
  const auto first = dialler.control->connect(yielder.address);
  const auto second = dialler.control->connect(yielder.address);
  yielder.answer_one(Bye{.reason = "the other goes on", .cause = Bye::kCrossing});
  // The peer of the first dial was created; that of the second, a second later, cannot be.
  dialler.broken = &out_of_locked_memory;
  for (const auto& attempt : {first, second}) {
    const std::string failure = dialler.failure(attempt, kSoon);
    CHECK(failure.find("no more memory may be locked") != std::string::npos);
  }
}

TEST_CASE(
    "a refusal counts, whatever its text: only the code says that another connection continues") {
  Station dialler;
  Yielder refuser;
  const auto attempt = dialler.control->connect(refuser.address);
  refuser.answer_one(Bye{.reason = "crossing"});
  CHECK(dialler.failure(attempt, kSoon) == "the peer refused the connection: crossing");
}

TEST_CASE("an endpoint without a proof of its id gets nothing, although it was dialled") {
  Station dialler;
  Yielder impostor;
  const auto attempt = dialler.control->connect(impostor.address);
  impostor.answer_one(Lookup{.request = 1, .name = "kv"});
  CHECK(dialler.failure(attempt, kSoon).find("before the Hello") != std::string::npos);
}

TEST_CASE("a queue pair that cannot be replaced ends the peer, on both sides") {
  Station dialler;
  Endpoint acceptor(options("acceptor"));
  const auto attempt = dialler.control->connect(acceptor.address());
  const auto there = acceptor.accept(soon());
  REQUIRE(dialler.poller().wait([&] { return attempt->done.is(); }, soon()));
  REQUIRE(attempt->peer != nullptr);

  queue_pairs_refused = true;
  attempt->peer->rails().path(0)->abandon("a test broke it");
  CHECK(dialler.poller().wait([&] { return !attempt->peer->alive(); }, within(kSoon)));
  std::string reason;
  try {
    (void)there->lookup("nothing", within(kSoon), /*now=*/false);
  } catch (const PeerLost& lost) {
    reason = lost.what();
  }
  CHECK(reason.find("its queue pair cannot be replaced") != std::string::npos);

  queue_pairs_refused = false;
  const auto again = dialler.control->connect(acceptor.address());
  REQUIRE(dialler.poller().wait([&] { return again->done.is(); }, soon()));
  CHECK(again->peer != nullptr);
}

}  // namespace
}  // namespace zerohop::testing
