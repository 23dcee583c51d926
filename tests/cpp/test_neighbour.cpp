// A Peer as a process of this host: its behaviour while the other end cannot or will not answer,
// and how it rings.
#include <doctest/doctest.h>

#include <span>

#include "engine/notify/board.hpp"
#include "engine/path/local/neighbour.hpp"
#include "shm/local_server.hpp"

using namespace zerohop;
using namespace zerohop::engine;

namespace {

// Only the test serves its local server.
struct Owner {
  Board board;
  std::shared_ptr<shm::Exposures> exposures = std::make_shared<shm::Exposures>();
  shm::LocalServer local_server{exposures, board.buffer()};
};

constexpr Neighbour::Patience kNone{.seconds = 0, .insists = false};
constexpr Neighbour::Patience kSome{.seconds = 20, .insists = true};

// Serves until the session has begun.
Neighbour::Reached reach_board(Neighbour& neighbour, Owner& owner) {
  const Deadline soon = Deadline::after(Deadline::Seconds(20));
  for (;;) {
    auto reached = neighbour.reach_board(kNone);
    if (reached.session || soon.passed()) return reached;
    owner.local_server.serve();
  }
}

}  // namespace

TEST_CASE("a notification rings when a thread sleeps, and only then") {
  Owner owner;
  Neighbour neighbour(owner.local_server.name(), owner.local_server.invite(),
                      std::make_shared<RouteBook>());
  const auto reached = reach_board(neighbour, owner);
  REQUIRE(reached.session);
  const auto notify = [&](std::uint32_t value) {
    const Message message{.kind = MessageKind::notify, .tag = 65535, .value = value};
    return reached.session->at_board(
        [&](std::byte* board) noexcept { Neighbour::notify(board, *reached.session, message); });
  };
  CHECK(notify(1) == shm::Copied::all);
  CHECK(owner.board.peek(65535) == 1);
  CHECK_FALSE(owner.local_server.serve());
  owner.board.sleepers().fetch_add(1);
  CHECK(notify(2) == shm::Copied::all);
  CHECK(owner.board.peek(65535) == 2);
  CHECK(owner.local_server.serve());
}

TEST_CASE("what was reached is known until its owner closes it or either side leaves") {
  Owner owner;
  const Buffer pages(4096);
  const auto address = reinterpret_cast<std::uintptr_t>(pages.data());
  const auto expose = [&] {
    return owner.exposures->expose({.begin = address, .end = address + 4096, .writable = true},
                                   {.memfd = pages.fd()}, std::make_shared<int>(0));
  };
  Neighbour neighbour(owner.local_server.name(), owner.local_server.invite(),
                      std::make_shared<RouteBook>());
  REQUIRE(reach_board(neighbour, owner).session);
  const auto reach = [&](std::uint64_t key) {
    RemoteMemory remote;
    remote.local_key = key;
    remote.layout.address = address;
    const Deadline soon = Deadline::after(Deadline::Seconds(20));
    for (;;) {
      auto reached = neighbour.reach(remote, kNone);
      if (reached.mapping || soon.passed()) return reached;
      owner.local_server.serve();
    }
  };

  auto first = expose();
  const std::uint64_t key = first->key();
  CHECK(neighbour.known(key) == nullptr);
  const auto reached = reach(key);
  REQUIRE(reached.mapping);
  const auto way = neighbour.known(key);
  REQUIRE(way);
  CHECK(way->session == reached.session);
  CHECK(way->mapping == reached.mapping);
  CHECK(neighbour.known(key + 1) == nullptr);

  first.reset();
  const Run run{reinterpret_cast<std::uintptr_t>(&key), address, sizeof key};
  const auto copied = way->session->copy(*way->mapping, shm::Direction::write, std::span(&run, 1),
                                         [](std::byte*) noexcept { FAIL("it was closed"); });
  CHECK(copied == shm::Copied::revoked);
  SUBCASE("forgotten with what is reached next") {
    const auto second = expose();
    REQUIRE(reach(second->key()).mapping);
    CHECK(neighbour.known(key) == nullptr);
    CHECK(neighbour.known(second->key()) != nullptr);
  }
  SUBCASE("forgotten now and then") {
    CHECK(neighbour.sweep() > 0);
    CHECK(neighbour.known(key) == nullptr);
    CHECK(neighbour.sweep() == 0);  // visits what ended, not all that exists
  }
  SUBCASE("forgotten with the session") {
    neighbour.leave();
    CHECK(neighbour.known(key) == nullptr);
  }
}

TEST_CASE("a peer that does not answer is counted, waited for once, and found when it does") {
  Owner owner;
  Neighbour neighbour(owner.local_server.name(), owner.local_server.invite(),
                      std::make_shared<RouteBook>());
  const auto first = neighbour.reach_board({.seconds = 0.01, .insists = false});
  CHECK_FALSE(first.session);
  CHECK(first.reason == "its process did not answer in time");
  const auto begin = Deadline::Clock::now();
  for (int i = 0; i < 30; ++i) {
    CHECK_FALSE(neighbour.reach_board({.seconds = 20, .insists = false}).session);
  }
  CHECK(Deadline::Clock::now() - begin < std::chrono::seconds(15));  // a second each, if it waited
  CHECK(neighbour.unanswered() == 31);
  CHECK(reach_board(neighbour, owner).session);
}

TEST_CASE("a session that ended is begun anew after a while") {
  Owner owner;
  const shm::Token token = owner.local_server.invite();
  Neighbour neighbour(owner.local_server.name(), token, std::make_shared<RouteBook>());
  const auto first = reach_board(neighbour, owner);
  REQUIRE(first.session);
  {
    Neighbour rival(owner.local_server.name(), token,
                    std::make_shared<RouteBook>());  // the same token again: the first is shown out
    REQUIRE(reach_board(rival, owner).session);
    RemoteMemory remote;
    remote.local_key = 1;
    CHECK_FALSE(neighbour.reach(remote, kSome).session);
    CHECK_FALSE(neighbour.reach(remote, kSome).session);  // not at once
  }
  CHECK(reach_board(neighbour, owner).session);
}

TEST_CASE("a session that has ended does not come back") {
  Owner owner;
  Neighbour neighbour(owner.local_server.name(), owner.local_server.invite(),
                      std::make_shared<RouteBook>());
  const auto reached = reach_board(neighbour, owner);
  REQUIRE(reached.session);
  neighbour.leave();
  CHECK(reached.session->at_board([](std::byte*) noexcept {}) == shm::Copied::left);
  CHECK(neighbour.reach_board(kSome).reason == "the connection has ended");
}
