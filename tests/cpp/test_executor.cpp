// The order of locks; and work on a separate thread: its order, its end, and what a child of fork()
// may do with it.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/executor.hpp"
#include "base/locks.hpp"
#include "base/per_process.hpp"
#include "eventually.hpp"
#include "no_threads.hpp"
#include "process.hpp"
#include "reported.hpp"

namespace zerohop::testing {
namespace {

using Work = Executor::Work;

// --- a violation of the lock order aborts the program with both names ---

// In any build, whether or not Mutex is ranked.
template <Rank rank>
using Checked = RankedMutex<rank, std::mutex>;

using Outer = Checked<Rank::poller>;
using Inner = Checked<Rank::rail_group>;
static_assert(Rank::poller < Rank::rail_group);
#ifdef ZEROHOP_CHECK_LOCKS
static_assert(std::is_same_v<Mutex<Rank::poller>, Outer>);
#else
static_assert(std::is_same_v<Mutex<Rank::poller>, std::mutex>);
#endif

struct Ending {
  bool aborted;
  std::string words;  // on stderr
};

// The result of a child that runs `body`.
template <typename Body>
Ending ending_of(Body body) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGABRT, SIG_DFL);  // else doctest would report it
    ::dup2(ends[1], STDERR_FILENO);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  Ending ending;
  char text[512];
  for (ssize_t got; (got = ::read(ends[0], text, sizeof text)) > 0;) {
    ending.words.append(text, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  ending.aborted = exit_code(child) == 128 + SIGABRT;
  return ending;
}

TEST_CASE("locks in order pass") {
  const Ending ending = ending_of([] {
    Outer outer;
    Inner inner;
    for (int i = 0; i < 2; ++i) {
      const std::lock_guard first(outer);
      const std::lock_guard second(inner);
    }
    std::unique_lock second(inner);
    if (!std::unique_lock(outer, std::try_to_lock)) ::_exit(1);  // never blocks
    second.unlock();                                             // not the last one taken
    second.lock();
    RankedMutex<Rank::endpoint_life, std::shared_timed_mutex> shared;
    second.unlock();
    const std::shared_lock reader(shared);
    const std::shared_lock again(shared);
    if (shared.try_lock_for(std::chrono::milliseconds(1))) ::_exit(1);
  });
  CHECK_FALSE(ending.aborted);
  CHECK(ending.words == "");
}

TEST_CASE("a planted inversion is found at its first lock, whether or not another thread is near") {
  const Ending ending = ending_of([] {
    Outer outer;
    Inner inner;
    const std::lock_guard first(inner);
    const std::lock_guard second(outer);
  });
  CHECK(ending.aborted);
  CHECK(contains(ending.words, "poller is locked with rail_group held"));
}

TEST_CASE("so is one behind a lock that was only tried") {
  const Ending ending = ending_of([] {
    Outer outer;
    Inner inner;
    const std::unique_lock first(inner, std::try_to_lock);
    const std::lock_guard second(outer);
  });
  CHECK(ending.aborted);
}

TEST_CASE("and one of two locks of the same rank, or of one that is shared") {
  CHECK(ending_of([] {
          Outer one;
          Outer other;
          const std::lock_guard first(one);
          const std::lock_guard second(other);
        }).aborted);
  CHECK(ending_of([] {
          Outer one;
          RankedMutex<Rank::rail_group, std::shared_timed_mutex> shared;
          const std::shared_lock first(shared);
          const std::lock_guard second(one);
        }).aborted);
}

TEST_CASE("each thread has its own locks") {
  const Ending ending = ending_of([] {
    Outer outer;
    Inner inner;
    const std::lock_guard held(inner);
    std::thread([&] { const std::lock_guard other(outer); }).join();
  });
  CHECK_FALSE(ending.aborted);
}

TEST_CASE("a child takes no lock of its parent's, whether or not a thread of that holds it") {
  Inner inner;
  const Ending ending = ending_of([&] { const std::lock_guard lock(inner); });
  CHECK(ending.aborted);
  CHECK(contains(ending.words, "fork: rail_group of the parent is taken in a child"));
  RankedMutex<Rank::endpoint_life, std::shared_timed_mutex> shared;
  CHECK(ending_of([&] { const std::shared_lock lock(shared); }).aborted);
}

// --- work ---

bool run(Executor& executor, Work work) { return executor.run(work); }
Deadline at_once() { return Deadline::after(Deadline::Seconds{0}); }

// A call that hangs until asked to return.
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
    std::promise<std::thread::id>& reported;
    ~Last() {
      REQUIRE(run(executor, [] {}));
      reported.set_value(std::this_thread::get_id());
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
  CHECK(in_child([&] {
          Work work = [] {};
          const bool refused = !executor->run(work) && work && executor->stop(soon());
          executor.reset();
          return refused ? 0 : 1;
        }) == 0);
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
  CHECK(in_child([&] {
          const bool fresh = things.get().value == 1;
          things.get().value = 3;
          return fresh && things.get().value == 3 ? 0 : 1;
        }) == 0);
  CHECK(things.get().value == 2);
}

}  // namespace
}  // namespace zerohop::testing
