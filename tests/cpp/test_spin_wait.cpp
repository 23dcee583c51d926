// SpinWait: the budget of a wait, and that threads which share a core give way to each other.
#include <doctest/doctest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "base/spin_wait.hpp"

using namespace std::chrono_literals;
using zerohop::SpinWait;

namespace {

// Binds the calling thread alone, to the first core that it may use.
void share_one_core() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  REQUIRE(::pthread_getaffinity_np(::pthread_self(), sizeof allowed, &allowed) == 0);
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  CPU_ZERO(&allowed);
  CPU_SET(first, &allowed);
  REQUIRE(::pthread_setaffinity_np(::pthread_self(), sizeof allowed, &allowed) == 0);
}

// Takes the turns of that parity; returns how many looks were too early.
std::uint64_t take_turns(std::atomic<std::uint32_t>& turn, std::uint32_t parity,
                         std::uint32_t rounds) {
  share_one_core();
  std::uint64_t vain = 0;
  SpinWait::Learned learned;
  for (std::uint32_t mine = parity; mine < 2 * rounds; mine += 2) {
    SpinWait wait(SpinWait::Clock::duration::max(), SpinWait::Clock::time_point::max(), &learned);
    for (; turn.load(std::memory_order_acquire) != mine; wait.pause()) ++vain;
    turn.store(mine + 1, std::memory_order_release);
  }
  return vain;
}

}  // namespace

TEST_CASE("a wait ends when its thread has had the core for that long") {
  SpinWait wait(1ms);
  std::uint64_t looks = 1;
  while (wait.pause()) ++looks;
  CHECK(looks > 1);
}

TEST_CASE("a wait without any time ends at its first look at the clock") {
  SpinWait wait(0ms);
  std::uint64_t looks = 1;
  while (wait.pause()) ++looks;
  CHECK(looks <= 8);
}

TEST_CASE("a wait ends no later than its last moment") {
  const auto last = SpinWait::Clock::now() + 2ms;
  SpinWait wait(SpinWait::Clock::duration::max(), last);
  std::uint64_t looks = 1;
  while (wait.pause()) ++looks;
  CHECK(looks > 1);
}

// Without giving way each turn would take a whole time slice: a hundred thousand looks.
TEST_CASE("two threads of one core that wait for each other take turns within a few looks") {
  constexpr std::uint32_t kRounds = 2000;
  std::atomic<std::uint32_t> turn{0};
  std::uint64_t others = 0;
  std::thread other([&] { others = take_turns(turn, 1, kRounds); });
  std::uint64_t own = 0;
  std::thread first([&] { own = take_turns(turn, 0, kRounds); });
  first.join();
  other.join();
  CHECK((own + others) / (2 * kRounds) < 1000);
}
