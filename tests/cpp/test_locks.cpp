// The lock order is checked, and a violation aborts the program with both names.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <type_traits>

#include "base/locks.hpp"

namespace zerohop {
namespace {

// In any build, whether or not Mutex is ranked.
template <Rank rank>
using Checked = RankedMutex<rank, std::mutex>;
using Outer = Checked<Rank::poller>;
using Inner = Checked<Rank::path_group>;
static_assert(Rank::poller < Rank::path_group);

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
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ending.aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
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
  CHECK(ending.words.find("poller is locked with path_group held") != std::string::npos);
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
          RankedMutex<Rank::path_group, std::shared_timed_mutex> shared;
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
  CHECK(ending.words.find("fork: path_group of the parent is taken in a child") !=
        std::string::npos);
  RankedMutex<Rank::endpoint_life, std::shared_timed_mutex> shared;
  CHECK(ending_of([&] { const std::shared_lock lock(shared); }).aborted);
}

}  // namespace
}  // namespace zerohop
