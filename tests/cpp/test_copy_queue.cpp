// Copies for many Peers on one thread: order, fairness, and copies that cannot continue.
#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <string>

#include "base/error.hpp"
#include "engine/path/local/copy_queue.hpp"
#include "eventually.hpp"
#include "no_threads.hpp"

namespace zerohop::engine {
namespace {

using testing::eventually;
using Step = CopyQueue::Step;

struct Fixture {
  const int a = 0;  // Peers
  const int b = 0;
  std::string order;              // owned by the thread until `done` is set
  std::atomic<int> done{0};       // copies
  std::atomic<bool> room{false};  // of what waits for it
  std::promise<void> start;       // of the first copy; the others queue behind it
  CopyQueue queue;

  Fixture() {
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

TEST_CASE_FIXTURE(Fixture, "Peers take turns, and each one's copies keep their order") {
  put(a, '1', 3);
  put(a, '2');
  put(b, 'x');
  put(b, 'y', 2);
  start.set_value();
  queue.stop();
  CHECK(order == "1x1y1y2");
  CHECK(done == 4);
}

TEST_CASE_FIXTURE(Fixture, "a copy that cannot go on holds up its own Peer's, and no other's") {
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

TEST_CASE_FIXTURE(Fixture, "what is left is made before the end, parked or not") {
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
    const testing::NoThreads none;
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

}  // namespace
}  // namespace zerohop::engine
