// Work on a separate thread: its order, its end, and what a child of fork() may do with it.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/executor.hpp"
#include "base/per_process.hpp"
#include "eventually.hpp"
#include "no_threads.hpp"

namespace zerohop {
namespace {

using testing::eventually;
using testing::NoThreads;
using Work = Executor::Work;

bool run(Executor& executor, Work work) { return executor.run(work); }

Deadline soon() { return Deadline::after(Deadline::Seconds{20}); }
Deadline at_once() { return Deadline::after(Deadline::Seconds{0}); }

// A call that hangs until told to return.
struct Hung {
  std::promise<void> go_on;
  std::atomic<bool> begun{false};
  std::atomic<bool> ended{false};
  Work work() {
    return [this] {
      begun = true;
      go_on.get_future().wait();
      ended = true;
    };
  }
};

int status_of(pid_t child) {
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("one thread runs what waits, in its order, and ends with the last of it") {
  Executor executor("zh-test");
  Hung hung;
  std::vector<int> order;
  std::set<std::thread::id> threads;
  std::atomic<int> done{0};
  REQUIRE(run(executor, hung.work()));
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(run(executor, [&, i] {
      order.push_back(i);
      threads.insert(std::this_thread::get_id());
      ++done;
    }));
  }
  CHECK(done == 0);  // queued behind the hanging call
  hung.go_on.set_value();
  CHECK(eventually([&] { return done == 1000; }));
  CHECK(executor.stop(soon()));
  CHECK(threads.size() == 1);
  for (int i = 0; i < 1000; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("what comes once the thread has ended starts another") {
  Executor executor("zh-test");
  for (int i = 0; i < 100; ++i) {
    auto done = std::make_shared<std::promise<void>>();
    auto waits = done->get_future();
    REQUIRE(run(executor, [done] { done->set_value(); }));
    waits.wait();
  }
  CHECK(executor.stop(soon()));
}

TEST_CASE("work is destroyed on the thread, without a lock") {
  Executor executor("zh-test");
  std::promise<std::thread::id> destroyed;
  struct Last {
    Executor& executor;
    std::promise<std::thread::id>& told;
    ~Last() {
      REQUIRE(run(executor, [] {}));
      told.set_value(std::this_thread::get_id());
    }
  };
  REQUIRE(run(executor, [last = std::make_shared<Last>(executor, destroyed)] {}));
  CHECK(destroyed.get_future().get() != std::this_thread::get_id());
}

TEST_CASE("a call that hangs holds up neither stop() nor the end; what waits is not begun") {
  auto hung = std::make_unique<Hung>();
  std::atomic<int> begun{0};
  const auto held = std::make_shared<int>();
  {
    std::optional<Executor> executor(std::in_place, "zh-test");
    REQUIRE(run(*executor, hung->work()));
    REQUIRE(run(*executor, [&begun, held] { ++begun; }));
    CHECK(eventually([&] { return hung->begun.load(); }));
    CHECK_FALSE(executor->stop(at_once()));
    Work late = [&begun] { ++begun; };
    CHECK_FALSE(executor->run(late));
    CHECK(late);  // left with the caller
    executor.reset();
  }
  CHECK(held.use_count() == 2);
  hung->go_on.set_value();
  CHECK(eventually([&] { return held.use_count() == 1; }));
  CHECK(hung->ended);
  CHECK(begun == 0);
}

TEST_CASE("what was not begun is destroyed, though it holds the Executor") {
  Hung hung;
  auto executor = std::make_shared<Executor>("zh-test");
  const std::weak_ptr<Executor> left = executor;
  REQUIRE(run(*executor, hung.work()));
  REQUIRE(run(*executor, [executor] {}));
  CHECK(eventually([&] { return hung.begun.load(); }));
  CHECK_FALSE(executor->stop(at_once()));
  executor.reset();
  CHECK_FALSE(left.expired());
  hung.go_on.set_value();
  CHECK(eventually([&] { return left.expired() && hung.ended.load(); }));
}

TEST_CASE("work may stop what it runs on") {
  const auto executor = std::make_shared<Executor>("zh-test");
  std::promise<bool> stopped;
  REQUIRE(run(*executor, [&] { stopped.set_value(executor->stop(soon())); }));
  CHECK(stopped.get_future().get());
  CHECK(executor->stop(soon()));
}

TEST_CASE("where no thread can be started, work stays with the caller") {
  Executor executor("zh-test");
  int ran = 0;
  Work work = [&ran] { ++ran; };
  {
    const NoThreads none;
    CHECK_FALSE(executor.run(work));
  }
  REQUIRE(work);
  work();
  CHECK(ran == 1);
  CHECK(executor.stop(soon()));
}

TEST_CASE("a child of fork() leaves its parent's alone, at once") {
  Hung hung;
  auto executor = std::make_unique<Executor>("zh-test");
  REQUIRE(run(*executor, hung.work()));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Work work = [] {};
    const bool refused = !executor->run(work) && work && executor->stop(soon());
    executor.reset();
    ::_exit(refused ? 0 : 1);
  }
  CHECK(status_of(child) == 0);
  hung.go_on.set_value();
  CHECK(executor->stop(soon()));
}

TEST_CASE("each process has one of its own") {
  struct Thing {
    int value = 1;
  };
  static PerProcess<Thing> things;
  things.get().value = 2;
  CHECK(things.get().value == 2);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool fresh = things.get().value == 1;
    things.get().value = 3;
    ::_exit(fresh && things.get().value == 3 ? 0 : 1);
  }
  CHECK(status_of(child) == 0);
  CHECK(things.get().value == 2);
}

}  // namespace
}  // namespace zerohop
