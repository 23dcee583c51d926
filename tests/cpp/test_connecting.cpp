// Connecting when one side cannot make what it needs: both sides learn it, soon and in words.
#include <doctest/doctest.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <new>
#include <string>
#include <variant>

#include "base/error.hpp"
#include "couple.hpp"
#include "engine/control.hpp"
#include "engine/socket.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::testing {
namespace {

using namespace zerohop::engine;

constexpr double kSoon = 5.0;  // seconds: the promise

std::atomic<bool> queue_pairs_refused{false};

// soft0, which refuses queue pairs while that is wanted.
std::shared_ptr<rdma::Device> open_device_that_may_refuse() {
  auto verbs = std::make_shared<driver::Verbs>(*softhca::verbs());
  verbs->create_qp = [](ibv_pd* pd, ibv_qp_init_attr* init) -> ibv_qp* {
    if (!queue_pairs_refused.load()) return softhca::verbs()->create_qp(pd, init);
    errno = ENOMEM;
    return nullptr;
  };
  return rdma::Device::open(std::move(verbs), "soft0");
}

// A Control whose peers can be made only as long as `broken` is null.
class Station {
 public:
  Station() {
    auto device = open_device_that_may_refuse();
    rails_.push_back(
        std::make_shared<Rail>(0, rdma::ProtectionDomain::create(device), "it was asked for"));
    services_.poller =
        std::make_shared<Poller>(Poller::Devices{device}, std::chrono::microseconds(200), nullptr);
    services_.board = std::make_shared<Board>();
    address.name = "station";
    address.host = "127.0.0.1";
    control = Control::start(address, rails_, services_.poller,
                             [this](const std::weak_ptr<Control>& weak, Peer::Identity identity) {
                               if (broken.load() != nullptr) broken.load()();
                               return Peer::create(host(weak), services_, std::move(identity));
                             });
  }
  ~Station() { control->stop(); }

  // The end of an attempt that must fail within `seconds`.
  std::string failure(const std::shared_ptr<Attempt>& attempt, double seconds) {
    REQUIRE(services_.poller->wait([&] { return attempt->done.load(); }, within(seconds)));
    REQUIRE(attempt->error);
    return attempt->error->message;
  }
  Poller& poller() { return *services_.poller; }

  Address address = Address::with_random_keys();
  std::atomic<void (*)()> broken{nullptr};
  std::shared_ptr<Control> control;

 private:
  Peer::Host host(const std::weak_ptr<Control>& weak) {
    return {.own_id = address.id,
            .rails = rails_,
            .default_timeout = kTimeout,
            .neighbourhood = nullptr,
            .no_neighbourhood = {},
            .copy_queue = {},
            .books = std::make_shared<RouteBooks>(),
            .registrations =
                std::make_shared<Registrations>(rails_, nullptr, std::make_shared<LiveRegions>()),
            .staged_memories = nullptr,
            .stager = nullptr,
            .checker = nullptr,
            .tell = [](const std::shared_ptr<Peer>&, ControlMessage) {},
            .repair =
                [weak](const std::shared_ptr<Peer>& peer, RailIndex rail) {
                  if (auto alive = weak.lock()) alive->repair(peer, rail);
                },
            .leave = [](const std::shared_ptr<Peer>&) {},
            .look = [] {},
            .cuda = {}};
  }

  Rails rails_;
  PathServices services_;
};

void out_of_locked_memory() { throw RegistrationError("no more memory may be locked"); }
void out_of_memory() { throw std::bad_alloc(); }

// Answers the first Hello as a side does whose own dial goes on, and never dials.
class Yielder {
 public:
  Yielder() : listener_(listen_tcp("127.0.0.1")) {
    address.host = "127.0.0.1";
    address.port = local_port(listener_.get());
    address.name = "yielder";
  }

  void yield_to_one() {
    const Deadline deadline = soon();
    await(listener_.get(), deadline);
    channel_ = Channel::accept(accept_tcp(listener_.get()), address.secret);
    bool greeted = false;
    while (!greeted) {
      await(channel_->fd(), deadline);
      REQUIRE(channel_->progress([&](std::span<const std::byte> bytes) {
        greeted = std::holds_alternative<Hello>(decode_control_message(bytes));
      }));
    }
    channel_->send(encode(Bye{.reason = "crossing"}));
  }

  Address address = Address::with_random_keys();

 private:
  static void await(int fd, const Deadline& deadline) {
    pollfd wait{fd, POLLIN, 0};
    REQUIRE(::poll(&wait, 1, deadline.remaining_ms()) == 1);
  }

  UniqueFd listener_;
  std::unique_ptr<Channel> channel_;
};

TEST_CASE("an acceptor that cannot make a peer tells the dialler why") {
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
  REQUIRE(dialler.poller().wait([&] { return attempt->done.load(); }, soon()));
  CHECK(attempt->peer != nullptr);
}

TEST_CASE("dialling again after giving way may fail at once: every caller that waits learns it") {
  Station dialler;
  Yielder yielder;
  const auto first = dialler.control->connect(yielder.address);
  const auto second = dialler.control->connect(yielder.address);
  yielder.yield_to_one();
  // The peer of the first dial has been made; the one of the second, a second later, cannot be.
  dialler.broken = &out_of_locked_memory;
  for (const auto& attempt : {first, second}) {
    const std::string failure = dialler.failure(attempt, kSoon);
    CHECK(failure.find("no more memory may be locked") != std::string::npos);
  }
}

TEST_CASE("a queue pair that cannot be replaced ends the peer, on both sides") {
  Station dialler;
  Endpoint acceptor(options("acceptor"));
  const auto attempt = dialler.control->connect(acceptor.address());
  const auto there = acceptor.accept(soon());
  REQUIRE(dialler.poller().wait([&] { return attempt->done.load(); }, soon()));
  REQUIRE(attempt->peer != nullptr);

  queue_pairs_refused = true;
  attempt->peer->path(0)->abandon("a test broke it");
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
  REQUIRE(dialler.poller().wait([&] { return again->done.load(); }, soon()));
  CHECK(again->peer != nullptr);
}

}  // namespace
}  // namespace zerohop::testing
