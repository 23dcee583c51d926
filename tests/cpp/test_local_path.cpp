// Copies to processes of this host: their turns on one thread, and a process that cannot or will
// not answer.
#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "couple.hpp"
#include "engine/notify/board.hpp"
#include "engine/path/local/copy_queue.hpp"
#include "engine/path/local/neighbour.hpp"
#include "no_threads.hpp"
#include "shm/hazards.hpp"
#include "shm/local_server.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;
using Step = CopyQueue::Step;

// --- many Peers on one thread: order, fairness, and copies that cannot continue ---

struct Copies {
  const int a = 0;  // Peers
  const int b = 0;
  std::string order;              // owned by the thread until `done` is set
  std::atomic<int> done{0};       // copies
  std::atomic<bool> room{false};  // of what waits for it
  std::promise<void> start;       // of the first copy; the others queue behind it
  CopyQueue queue;

  Copies() {
    queue.put(&start, [waits = start.get_future().share()] {
      waits.wait();
      return Step::done;
    });
  }
  // Takes that many steps.
  void put(const int& peer, char name, int steps = 1) {
    queue.put(&peer, [this, name, steps]() mutable {
      order += name;
      if (--steps > 0) return Step::more;
      ++done;
      return Step::done;
    });
  }
  void put_waiting(const int& peer, char name) {
    queue.put(&peer, [this, name] {
      if (!room) return Step::later;
      order += name;
      ++done;
      return Step::done;
    });
  }
};

TEST_CASE_FIXTURE(Copies, "Peers take turns, and each one's copies keep their order") {
  put(a, '1', 3);
  put(a, '2');
  put(b, 'x');
  put(b, 'y', 2);
  start.set_value();
  queue.stop();
  CHECK(order == "1x1y1y2");
  CHECK(done == 4);
}

TEST_CASE_FIXTURE(Copies, "a copy that cannot go on holds up its own Peer's, and no other's") {
  put_waiting(a, '1');
  put(a, '2');
  start.set_value();
  for (const char name : {'x', 'y', 'z'}) {
    put(b, name);
    const int before = name - 'x';
    CHECK(eventually([&] { return done == before + 1; }));
  }
  CHECK(order == "xyz");
  room = true;
  CHECK(eventually([&] { return done == 5; }));
  CHECK(order == "xyz12");
}

TEST_CASE_FIXTURE(Copies, "what is left is made before the end, parked or not") {
  put_waiting(a, '1');
  put(a, '2');
  put(b, 'x');
  start.set_value();
  CHECK(eventually([&] { return done == 1; }));
  std::thread later([this] { room = true; });
  queue.stop();
  later.join();
  CHECK(order == "x12");
  CHECK_THROWS_AS(put(a, '3'), Error);
}

TEST_CASE("a copy without a thread is an error to its caller, and not made later") {
  CopyQueue queue;
  std::atomic<int> made{0};
  const auto copy = [&] {
    ++made;
    return Step::done;
  };
  {
    const NoThreads none;
    CHECK_THROWS_AS(queue.put(nullptr, copy), Error);
  }
  queue.put(nullptr, copy);
  queue.stop();
  CHECK(made == 1);
}

TEST_CASE("what a copy held is released on the thread, without the lock") {
  CopyQueue queue;
  std::promise<std::thread::id> gone;
  struct Held {
    CopyQueue& queue;
    std::promise<std::thread::id>& gone;
    ~Held() {
      queue.put(this, [] { return Step::done; });
      gone.set_value(std::this_thread::get_id());
    }
  };
  queue.put(nullptr, [held = std::make_shared<Held>(queue, gone)] { return Step::done; });
  CHECK(gone.get_future().get() != std::this_thread::get_id());
}

constexpr std::int64_t kNbytes = 5'000'000;  // more than is copied within the call, or at once

struct Far {
  Far(Endpoint& from, const char* name)
      : endpoint(near(name)), to(from.connect(endpoint.address().to_bytes(), soon())) {}
  TransferPtr write(const Memory& source, std::optional<Notification> notify = {}) const {
    return testing::write(*to, source, there, by("p2p", notify));
  }

  Endpoint endpoint;
  std::shared_ptr<Peer> to;
  Memory memory = endpoint.empty(std::span(&kNbytes, 1), DType::parse("uint8"));
  RemoteMemory there = memory.remote();
};

// Threads of this process that access a Peer's memory, as many as may at once.
class Crowd {
 public:
  explicit Crowd(Peer& peer) {
    const auto session =
        peer.neighbour()->reach_board({.seconds = kTimeout, .insists = true}).session;
    REQUIRE(session);
    for (std::size_t i = 0; i < shm::Hazards::kClaims; ++i) {
      threads_.emplace_back([this, session] {
        (void)session->at_board([this](std::byte*) noexcept {
          ++there_;
          leave_.wait();
        });
      });
    }
    REQUIRE(eventually([this] { return there_ == shm::Hazards::kClaims; }));
  }
  ~Crowd() { disperse(); }
  void disperse() {
    if (threads_.empty()) return;
    reported_.set_value();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::promise<void> reported_;
  std::shared_future<void> leave_ = reported_.get_future().share();
  std::atomic<std::size_t> there_{0};
  std::vector<std::thread> threads_;
};

TEST_CASE("long copies to one Peer go on while those to another cannot") {
  Endpoint left(near("left"));
  const Far a(left, "a");
  const Far b(left, "b");
  const Memory source = left.empty(std::span(&kNbytes, 1), DType::parse("uint8"));
  REQUIRE(a.write(source)->wait(soon()));
  REQUIRE(b.write(source)->wait(soon()));

  std::mutex mutex;
  std::string ended;  // whose copy ended, in order
  const auto tell = [&](char name) {
    return [&, name] {
      const std::lock_guard lock(mutex);
      ended += name;
    };
  };
  Crowd crowd(*a.to);
  const auto first = a.write(source);
  first->on_done(tell('1'));
  const auto second = a.write(source);
  second->on_done(tell('2'));
  const auto other = b.write(source, Notification{1, 7});
  other->on_done(tell('b'));
  finish(other);
  CHECK(b.endpoint.peek_notify(1) == 7);
  crowd.disperse();
  REQUIRE(second->wait(soon()));
  CHECK(first->done());
  const std::lock_guard lock(mutex);
  CHECK(ended == "b12");
}

// --- a Peer as a process of this host, and how it rings ---

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
  const Deadline deadline = soon();
  for (;;) {
    auto reached = neighbour.reach_board(kNone);
    if (reached.session || deadline.passed()) return reached;
    owner.local_server.serve();
  }
}

TEST_CASE("a notification rings when a thread sleeps, and only then") {
  Owner owner;
  Neighbour neighbour(owner.local_server.name(), owner.local_server.invite(),
                      std::make_shared<RouteBook>());
  const auto reached = reach_board(neighbour, owner);
  REQUIRE(reached.session);
  const auto notify = [&](std::uint32_t value) {
    const Message message{.kind = MessageKind::notify, .value = value, .tag = 65535};
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
    const Deadline deadline = soon();
    for (;;) {
      auto reached = neighbour.reach(remote, kNone);
      if (reached.mapping || deadline.passed()) return reached;
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
    neighbour.end();
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
  neighbour.end();
  CHECK(reached.session->at_board([](std::byte*) noexcept {}) == shm::Copied::left);
  CHECK(neighbour.reach_board(kSome).reason == "the connection has ended");
}

}  // namespace
}  // namespace zerohop::testing
