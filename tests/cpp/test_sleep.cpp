// Queue pairs that are released while not needed, and come back with the next job.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "couple.hpp"
#include "engine/path/verbs/verbs_path.hpp"
#include "eventually.hpp"

namespace zerohop::testing {
namespace {

using namespace zerohop::engine;
using std::chrono::milliseconds;

EndpointOptions sleepy(const char* name, std::size_t most, milliseconds after_use = {}) {
  EndpointOptions chosen = options(name);
  chosen.awake = {.most = most, .after_use = after_use};
  return chosen;
}

Memory bytes(Endpoint& endpoint, std::int64_t count) {
  return endpoint.empty(std::array{count}, DType::parse("uint8"));
}

void await(const std::shared_ptr<Transfer>& transfer) {
  REQUIRE(transfer->wait(soon()));
  (void)transfer->result();
}

softhca::Faults none_left() {
  softhca::Faults faults;
  faults.max_qp = 1;  // it has one, or more
  return faults;
}

// A hub that lets only one of its Peers be awake, and guests without a limit.
struct Hub {
  static constexpr std::size_t kGuests = 3;
  Endpoint hub{sleepy("hub", 1)};
  std::array<Endpoint, kGuests> guests{Endpoint(sleepy("guest 0", 0)),
                                       Endpoint(sleepy("guest 1", 0)),
                                       Endpoint(sleepy("guest 2", 0))};
  std::array<std::shared_ptr<Peer>, kGuests> to_guest, to_hub;
  Hub() {
    for (std::size_t i = 0; i < kGuests; ++i) {
      to_guest[i] = hub.connect(guests[i].address().to_bytes(), soon());
      to_hub[i] = guests[i].accept(soon());
    }
  }
  std::size_t awake() const {
    std::size_t count = 0;
    for (const auto& peer : to_guest) count += peer->rails().asleep() ? 0 : 1;
    return count;
  }
  // On both ends.
  void sleeps(std::size_t i) {
    REQUIRE(eventually([&] {
      // Using another one makes this one the least recently used.
      await(to_guest[(i + 1) % kGuests]->notify({.slot = 1, .value = 1}));
      return to_guest[i]->rails().asleep() && to_hub[i]->rails().asleep();
    }));
  }
};

TEST_CASE("what nobody uses gives its queue pair and registered memory back, at both ends") {
  Hub house;
  REQUIRE(eventually([&] { return house.awake() == 1; }));
  house.sleeps(0);
  for (const auto& peer : {house.to_guest[0], house.to_hub[0]}) {
    const auto& path = peer->rails().path(0);
    CHECK(path->queue_pair_number() == 0);
    CHECK(path->registered_nbytes() == 0);
    CHECK(path->stats().sleeps.load() >= 1);
    CHECK(path->stats().broken.load() == 0);
    CHECK(path->trouble().empty());
    CHECK(!path->settings().empty());  // those it had, and will have
    CHECK(peer->alive());
  }
}

TEST_CASE("whatever needs the queue pair has it back") {
  constexpr std::int64_t kBytes = 5000;
  Hub house;
  Memory near = bytes(house.hub, kBytes);
  Memory far = bytes(house.guests[0], kBytes);
  auto* const ours = reinterpret_cast<std::uint8_t*>(near.layout().address);
  auto* const theirs = reinterpret_cast<std::uint8_t*>(far.layout().address);
  Memory word = house.guests[0].empty(std::array{std::int64_t{1}}, DType::parse("int64"));
  const RemoteMemory remote = far.remote();
  const Peer::Pair pair{&near, &remote};
  Peer& peer = *house.to_guest[0];
  for (int round = 0; round < 3; ++round) {
    house.sleeps(0);
    std::iota(ours, ours + kBytes, static_cast<std::uint8_t>(round));
    await(peer.write({&pair, 1}, {}));
    CHECK(std::equal(ours, ours + kBytes, theirs));

    house.sleeps(0);
    std::iota(theirs, theirs + kBytes, static_cast<std::uint8_t>(round + 7));
    await(peer.read({&pair, 1}, {}));
    CHECK(std::equal(ours, ours + kBytes, theirs));

    house.sleeps(0);
    await(peer.notify({.slot = 5, .value = 9}));
    CHECK(house.guests[0].wait_notify(5, 1, true, soon()).second == 9);

    house.sleeps(0);  // on the end without a limit
    await(house.to_hub[0]->notify({.slot = 6, .value = 8}));
    CHECK(house.hub.wait_notify(6, 1, true, soon()).second == 8);

    house.sleeps(0);
    await(peer.fetch_add(word.remote(), 4));
    CHECK(*reinterpret_cast<const std::int64_t*>(word.layout().address) == 4 * (round + 1));
  }
  CHECK(peer.rails().path(0)->stats().broken.load() == 0);
  CHECK(peer.rails().path(0)->stats().queue_full.load() == 0);  // waking is not a lack of room
}

TEST_CASE("a recv() waits through a sleep, and so does a message that nobody has taken yet") {
  Hub house;
  Memory from = bytes(house.hub, 40000);  // more than a message carries
  Memory into = bytes(house.guests[0], 40000);
  Memory small = bytes(house.hub, 10);
  Memory small_into = bytes(house.guests[0], 10);
  std::memset(reinterpret_cast<void*>(from.layout().address), 3, 40000);
  std::memset(reinterpret_cast<void*>(small.layout().address), 4, 10);

  const auto received = house.to_hub[0]->receive(into, 1);
  house.sleeps(0);
  await(house.to_guest[0]->send(from, 1));
  await(received);
  CHECK(*reinterpret_cast<const std::uint8_t*>(into.layout().address + 39999) == 3);

  await(house.to_guest[0]->send(small, 2));
  house.sleeps(0);
  await(house.to_hub[0]->receive(small_into, 2));
  CHECK(*reinterpret_cast<const std::uint8_t*>(small_into.layout().address) == 4);
}

TEST_CASE("an offer that no recv() has taken keeps its queue pair awake") {
  Hub house;
  Memory from = bytes(house.hub, 40000);
  Memory into = bytes(house.guests[0], 40000);
  const auto sent = house.to_guest[0]->send(from, 1);
  const auto& came = house.to_hub[0]->rails().path(0)->stats().messages_in;
  REQUIRE(eventually([&] { return came.load() == 1; }));
  for (int i = 0; i < 50; ++i) {
    await(house.to_guest[1]->notify({.slot = 1, .value = 1}));
    await(house.to_guest[2]->notify({.slot = 1, .value = 1}));
    REQUIRE(!house.to_guest[0]->rails().asleep());
  }
  await(house.to_hub[0]->receive(into, 1));
  await(sent);
}

TEST_CASE("all that are in use are awake, however many may be") {
  Hub house;
  std::atomic<bool> ends{false};
  std::vector<std::thread> users;
  std::array<std::atomic<std::uint64_t>, Hub::kGuests> done{};
  for (std::size_t i = 0; i < Hub::kGuests; ++i) {
    users.emplace_back([&, i] {
      while (!ends.load()) {
        await(house.to_guest[i]->notify({.slot = 1, .value = 1}));
        done[i].fetch_add(1);
      }
    });
  }
  CHECK(eventually([&] {
    return std::ranges::all_of(done, [](const auto& count) { return count.load() >= 300; });
  }));
  ends.store(true);
  for (std::thread& user : users) user.join();
}

TEST_CASE("both ends have a limit, ask each other, and wake each other") {
  // Two Endpoints with two Peers each, all four with a limit of one: questions and wake-ups cross.
  Endpoint one(sleepy("one", 1));
  Endpoint two(sleepy("two", 1));
  Endpoint three(sleepy("three", 1));
  Endpoint* const all[] = {&one, &two, &three};
  std::vector<std::shared_ptr<Peer>> peers;
  for (int i = 0; i < 3; ++i) {
    peers.push_back(all[i]->connect(all[(i + 1) % 3]->address().to_bytes(), soon()));
    peers.push_back(all[(i + 1) % 3]->accept(soon()));
  }
  const auto sum = [&](auto PathStats::* counter) {
    std::uint64_t total = 0;
    for (const auto& peer : peers) total += (peer->rails().path(0)->stats().*counter).load();
    return total;
  };
  std::atomic<bool> ends{false};
  std::atomic<std::uint64_t> posted{0};
  std::vector<std::thread> users;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    users.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      while (!ends.load()) {
        const auto slot = static_cast<std::uint32_t>(i);
        for (std::size_t burst = random() % 5; burst > 0; --burst) {
          await(peers[i]->notify({.slot = slot, .value = 1}));
          posted.fetch_add(1);
        }
        // Until it sleeps, or for a while: wake-ups meet questions, answers and other wake-ups.
        const auto pause = Deadline::Seconds(static_cast<double>(random() % 30) / 1000);
        (void)eventually([&] { return ends.load() || peers[i]->rails().asleep(); }, pause);
      }
    });
  }
  CHECK(eventually([&] { return sum(&PathStats::sleeps) >= 200; }));
  ends.store(true);
  for (std::thread& user : users) user.join();
  // None is lost, and none arrives twice.
  CHECK(eventually([&] { return sum(&PathStats::notifications_in) >= posted.load(); }));
  CHECK(sum(&PathStats::notifications_in) == posted.load());
  CHECK(sum(&PathStats::broken) == 0);
  for (const auto& peer : peers) CHECK(peer->alive());
}

TEST_CASE("a Peer that cannot be woken for lack of a queue pair is, as soon as there is one") {
  Hub house;
  house.sleeps(0);
  house.hub.set_faults(none_left());
  const auto waits = house.to_guest[0]->notify({.slot = 5, .value = 3});
  CHECK(!waits->wait(within(0.6)));  // tried more than once
  house.hub.set_faults({});
  await(waits);
  CHECK(house.guests[0].wait_notify(5, 1, true, soon()).second == 3);
}

TEST_CASE("a Peer that cannot be woken is lost in the end, with the reason") {
  Hub house;
  house.sleeps(0);
  house.hub.set_faults(none_left());
  const auto fails = house.to_guest[0]->notify({.slot = 5, .value = 3});
  REQUIRE(fails->wait(soon()));
  CHECK_THROWS_WITH_AS((void)fails->result(), doctest::Contains("cannot be replaced"), PeerLost);
}

TEST_CASE("a sleeping Peer can be closed, and notices that the other has gone") {
  Hub house;
  house.sleeps(0);
  house.guests[0].close(soon());
  REQUIRE(eventually([&] { return !house.to_guest[0]->alive(); }));
  CHECK_THROWS_AS(house.to_guest[0]->notify({.slot = 1, .value = 1}), PeerLost);
  house.sleeps(1);
  house.hub.close(soon());
  CHECK(eventually([&] { return !house.to_hub[1]->alive(); }));
}

}  // namespace
}  // namespace zerohop::testing
