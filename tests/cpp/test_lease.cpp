// An object used by many threads until one closes it.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "engine/memory/lease.hpp"

using zerohop::engine::Lease;

namespace {

struct Thing {
  explicit Thing(std::atomic<int>& count) : ended(count) {}
  ~Thing() {
    value = 0;
    ended.fetch_add(1);
  }
  Thing(const Thing&) = delete;
  Thing& operator=(const Thing&) = delete;

  int value = 42;
  std::atomic<int>& ended;
};

}  // namespace

TEST_CASE("a closed object is kept for its users, and for nobody else") {
  std::atomic<int> ended{0};
  Lease<Thing> lease(std::make_shared<Thing>(ended));
  CHECK_FALSE(lease.closed());
  {
    const Lease<Thing>::Use use(lease);
    REQUIRE(use);
    CHECK(lease.close() != nullptr);
    CHECK(lease.closed());
    CHECK(ended == 0);
    CHECK(use.what()->value == 42);
    CHECK_FALSE(static_cast<bool>(Lease<Thing>::Use(lease)));
    CHECK(lease.close() == nullptr);
    CHECK(ended == 0);
  }
  CHECK(ended == 1);
  CHECK_FALSE(static_cast<bool>(Lease<Thing>::Use(lease)));
}

TEST_CASE("what nobody uses goes with the closing, unless its owner keeps it") {
  std::atomic<int> ended{0};
  Lease<Thing> lease(std::make_shared<Thing>(ended));
  auto kept = lease.close();
  CHECK(ended == 0);
  kept.reset();
  CHECK(ended == 1);
}

TEST_CASE("a use may hand an owner on") {
  std::atomic<int> ended{0};
  Lease<Thing> lease(std::make_shared<Thing>(ended));
  auto owner = Lease<Thing>::Use(lease).what();
  lease.close();
  CHECK(ended == 0);
  owner.reset();
  CHECK(ended == 1);
}

TEST_CASE("threads use it while others close it: it ends once, behind all of them") {
  constexpr int kThreads = 4;
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> ended{0};
    std::atomic<int> begun{0};
    std::atomic<int> closed{0};
    Lease<Thing> lease(std::make_shared<Thing>(ended));
    std::atomic<bool> wrong{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        for (int n = 0;; ++n) {
          const Lease<Thing>::Use use(lease);
          if (!use) return;
          if (use.what()->value != 42) wrong = true;
          if (n == 0) begun.fetch_add(1);
          if (i < 2 && begun == kThreads && lease.close()) closed.fetch_add(1);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    REQUIRE_FALSE(wrong);
    REQUIRE(closed == 1);
    REQUIRE(ended == 1);
  }
}
