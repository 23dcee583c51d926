// Connecting when one side lacks resources or its driver is slow: clear errors soon, and no other
// peer waits.
#include <doctest/doctest.h>
#include <poll.h>

#include <deque>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <variant>

#include "base/acceptor.hpp"
#include "engine/channel/socket.hpp"
#include "gpu_couple.hpp"
#include "station.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;

// --- both sides get a clear error soon ---

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
  const std::string refusal = message_of<PeerLost>(
      [&] { (void)dialler.connect(acceptor.address.to_bytes(), within(kSoon)); });
  CHECK(contains(refusal, "refused the connection"));
  CHECK(contains(refusal, "no more memory may be locked"));

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
  CHECK(contains(failure, "no more memory may be locked"));

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
    CHECK(contains(failure, "no more memory may be locked"));
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
  attempt->peer->rails().at(0)->to_error("a test broke it");
  CHECK(dialler.poller().wait([&] { return !attempt->peer->alive(); }, within(kSoon)));
  const std::string reason = message_of<PeerLost>(
      [&] { (void)there->lookups().find("nothing", within(kSoon), /*now=*/false); });
  CHECK(contains(reason, "its queue pair cannot be replaced"));

  queue_pairs_refused = false;
  const auto again = dialler.control->connect(acceptor.address());
  REQUIRE(dialler.poller().wait([&] { return again->done.is(); }, soon()));
  CHECK(again->peer != nullptr);
}

// --- slow drivers delay no peer: the thread that answers peers never calls one ---

// During a driver call for the other end, whose process keeps answering.
void check_that_it_answers(Peer& peer) {
  for (int i = 0; i < 50; ++i) CHECK_FALSE(peer.lookups().find("nothing", soon(), /*now=*/true));
}

// Blocks every driver call of a Station, for its lifetime.
class DriverHangs {
 public:
  DriverHangs() { driver_hangs.store(true); }
  ~DriverHangs() {
    driver_hangs.store(false);
    driver_hangs.notify_all();
  }
  DriverHangs(const DriverHangs&) = delete;
  DriverHangs& operator=(const DriverHangs&) = delete;
};

bool somebody_waits() {
  return eventually([] { return waiting_in_driver.load() > 0; });
}

// ... for that one; only this call drives its end of the connection.
bool somebody_waits(Newcomer& newcomer) {
  return eventually([&] {
    newcomer.hear();
    return waiting_in_driver.load() > 0;
  });
}

TEST_CASE_FIXTURE(GpuCouple, "an export of a GPU's memory that hangs") {
  const auto [ours, theirs] = arrays({1000});
  cuda.exports_hang.store(true);
  std::thread writer([&] { finish(write(*to_right, ours, theirs.remote())); });
  const bool asked = eventually([&] { return cuda.exports_hanging.load() > 0; });
  check_that_it_answers(*to_right);
  cuda.end_hang();
  writer.join();
  CHECK(asked);
  CHECK(to_right->alive());
  CHECK(eventually([&] {
    const auto again = write(*to_right, ours, theirs.remote());
    finish(again);
    return again->route().kind == "p2p";
  }));
}

TEST_CASE_FIXTURE(GpuCouple, "an Endpoint is closed though an export hangs") {
  const auto [ours, theirs] = arrays({1000});
  cuda.exports_hang.store(true);
  std::thread writer([&] {
    try {
      finish(write(*to_right, ours, theirs.remote()));
    } catch (const Error&) {  // its peer left
    }
  });
  CHECK(eventually([&] { return cuda.exports_hanging.load() > 0; }));
  right.close(within(0));
  CHECK(cuda.exports_hanging.load() > 0);
  cuda.end_hang();
  writer.join();
}

TEST_CASE("memory of a newcomer's queue pair takes long to register") {
  Station station;
  Endpoint here(options("here"));
  const auto peer = here.connect(station.address.to_bytes(), soon());
  Newcomer newcomer(station.address);
  {
    const DriverHangs hang;
    newcomer.greet();
    CHECK(somebody_waits(newcomer));
    check_that_it_answers(*peer);
  }
  newcomer.await<Hello>();
  newcomer.say(Ready{});
  CHECK(eventually([&] { return station.control->peers().size() == 2; }));
}

TEST_CASE("a connect() that was given up while its queue pair was being made, and another one") {
  Station station;
  Endpoint there(options("there"));
  std::shared_ptr<Attempt> again;
  {
    const DriverHangs hang;
    const auto first = station.control->connect(there.address());
    CHECK(somebody_waits());
    station.control->cancel(first);
    again = station.control->connect(there.address());
  }
  REQUIRE(station.poller().wait([&] { return again->done.is(); }, soon()));
  check_that_it_answers(*there.accept(soon()));
  CHECK(again->peer->alive());
  CHECK_FALSE(there.find_accepted());
}

TEST_CASE("a newcomer hangs up while its queue pair is being made, and comes again") {
  Station station;
  {
    const DriverHangs hang;
    Newcomer newcomer(station.address);
    newcomer.greet();
    CHECK(somebody_waits(newcomer));
  }
  Newcomer again(station.address);
  again.enter();
  CHECK(eventually([&] { return station.control->peers().size() == 1; }));
}

TEST_CASE("a queue pair takes long to replace") {
  Station station;
  Endpoint there(options("there"));
  const auto attempt = station.control->connect(there.address());
  REQUIRE(station.poller().wait([&] { return attempt->done.is(); }, soon()));
  const auto peer = there.accept(soon());
  {
    const DriverHangs hang;
    attempt->peer->rails().at(0)->to_error("a test broke it");
    CHECK(somebody_waits());
    check_that_it_answers(*peer);
  }
  CHECK(eventually([&] { return attempt->peer->rails().reports().front().trouble.empty(); }));
  finish(peer->notify({.slot = 1, .value = 1}));
}

TEST_CASE("a queue pair for kernels takes long to make") {
  Station station;
  Endpoint here(options("here"));
  const auto peer = here.connect(station.address.to_bytes(), soon());
  Newcomer asker(station.address);
  asker.enter();
  {
    const DriverHangs hang;
    asker.say(OpenDirect{.request = 7, .rail = 0, .queue_pair = Newcomer::queue_pair()});
    CHECK(somebody_waits());
    check_that_it_answers(*peer);
  }
  asker.await<DirectOpened>();
}

TEST_CASE("two queue pairs for kernels by one number are a breach") {
  Station station;
  Newcomer asker(station.address);
  asker.enter();
  const DriverHangs hang;
  for (int i = 0; i < 2; ++i) {
    asker.say(OpenDirect{.request = 7, .rail = 0, .queue_pair = Newcomer::queue_pair()});
  }
  asker.hear_until([&] { return asker.closed(); });
}

// --- costs with hundreds of peers are those with ten: one connection is visited, not all ---

constexpr std::uint32_t kPeers = 150;

// Peers that stay alive while beat() is called.
class Crowd {
 public:
  explicit Crowd(Station& station) : station_(station) {}

  void add(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      strangers_.emplace_back(station_.address).enter();
      if (i % 16 == 0) beat();
    }
    const auto all = [this] { return station_.control->peers().size() == strangers_.size(); };
    REQUIRE(station_.poller().wait(all, soon()));
  }
  void beat() {
    for (Newcomer& each : strangers_) each.say(Heartbeat{});
  }
  std::deque<Newcomer>& strangers() { return strangers_; }

 private:
  Station& station_;
  std::deque<Newcomer> strangers_;
};

TEST_CASE("what one connection is about is found without a look at the others") {
  Station station;
  Crowd crowd(station);
  crowd.add(kPeers);
  const auto peers = station.control->peers();
  // Ticks visit all, four times a second; the counts here are so large that ticks do not matter,
  // even on a slow machine.
  SUBCASE("a message") {
    constexpr std::uint64_t kMessages = 4000;
    const std::uint64_t before = station.control->looks();
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      station.control->tell(peers.front(), SumUp{.request = i, .parts = {}});
      if (i % 100 == 0) crowd.beat();
    }
    for (Newcomer& each : crowd.strangers()) {
      if (each.id() == peers.front()->identity().id) each.await<SumUp>(kMessages);
    }
    CHECK(station.control->looks() - before < 20 * kMessages);
  }
  SUBCASE("a share") {
    constexpr std::uint64_t kShares = 4000;
    Endpoint owner(options("owner"));
    const std::int64_t count = 1;
    const Memory memory = owner.empty({&count, 1}, DType::parse("int64"));
    auto& asker = crowd.strangers().front();
    asker.say(Lookup{.request = 1, .name = "the last"});
    asker.await<NotFound>();
    const std::uint64_t before = station.control->looks();
    for (std::uint64_t i = 0; i < kShares; ++i) {
      station.control->shares().put(std::to_string(i), memory);
      station.control->on_shared(std::to_string(i));
      if (i % 100 == 0) crowd.beat();
    }
    station.control->shares().put("the last", memory);
    station.control->on_shared("the last");
    asker.await<Found>();
    CHECK(station.control->looks() - before < 20 * kShares);
  }
  SUBCASE("an open") {
    constexpr std::uint32_t kOpens = 100;
    const std::uint64_t before = station.control->looks();
    crowd.add(kOpens);
    CHECK(station.control->looks() - before < std::uint64_t{kOpens} * kPeers / 2);
  }
}

}  // namespace
}  // namespace zerohop::testing
