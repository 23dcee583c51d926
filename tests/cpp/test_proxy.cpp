// Entries that kernels write, executed by a host thread.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "proxied.hpp"

namespace zerohop::testing {
namespace {

using device::Status;
using device::Ticket;

TEST_CASE_FIXTURE(Proxied, "what is put is there when the ticket is done") {
  std::iota(bytes(ours), bytes(ours) + 1000, std::uint8_t{1});
  Ticket ticket;
  REQUIRE(calls.put(5, 0, 1000, ticket) == Status::ok);
  REQUIRE(calls.wait(ticket, way.patience) == Status::ok);
  CHECK(std::equal(bytes(ours), bytes(ours) + 1000, bytes(theirs) + 5));
  const double value = 2.5;
  REQUIRE(calls.put_value(8, &value, sizeof value, ticket) == Status::ok);
  REQUIRE(calls.wait(ticket, way.patience) == Status::ok);
  CHECK(std::memcmp(bytes(theirs) + 8, &value, sizeof value) == 0);
  CHECK(proxy->error().empty());
}

TEST_CASE_FIXTURE(Proxied, "what is got is there when the ticket is done") {
  std::iota(bytes(theirs), bytes(theirs) + kNbytes, std::uint8_t{3});
  Ticket ticket;
  REQUIRE(calls.get(0, 0, kNbytes, ticket) == Status::ok);
  REQUIRE(calls.wait(ticket, way.patience) == Status::ok);
  CHECK(std::equal(bytes(ours), bytes(ours) + kNbytes, bytes(theirs)));
}

TEST_CASE_FIXTURE(Proxied, "nothing is put, too") {
  Ticket ticket;
  REQUIRE(calls.put(0, 0, 0, ticket) == Status::ok);
  CHECK(calls.wait(ticket, way.patience) == Status::ok);
  REQUIRE(calls.put_notify(0, 0, 0, 9, 6, ticket) == Status::ok);
  CHECK(right.wait_notify(9, 1, true, soon()).second == 6);
}

TEST_CASE_FIXTURE(Proxied, "a notification comes behind what was put before") {
  constexpr std::uint32_t kRounds = 3000;
  constexpr std::uint64_t kEach = 3000;
  Ticket ticket;
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    const auto fill = static_cast<std::uint8_t>(round);
    std::fill_n(bytes(ours), kEach, fill);
    REQUIRE(calls.put(0, 0, kEach / 2, ticket) == Status::ok);
    REQUIRE(calls.put_notify(kEach / 2, kEach / 2, kEach / 2, 7, round, ticket) == Status::ok);
    REQUIRE(right.wait_notify(7, 1, true, soon()).second == round);
    REQUIRE(std::all_of(bytes(theirs), bytes(theirs) + kEach, [&](auto b) { return b == fill; }));
    REQUIRE(calls.wait(ticket, way.patience) == Status::ok);
  }
}

TEST_CASE_FIXTURE(Proxied, "threads put at once, many times around the ring") {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kEach = 3 * gda::ProxyRing::kBlocks;
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (std::uint32_t number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      Ticket ticket;
      for (std::uint32_t i = 0; i < kEach; ++i) {
        const std::uint64_t at = 8 * (number * kEach + i);
        const std::uint64_t value = at * 77 + 1;
        if (calls.put_value(at, &value, sizeof value, ticket) != Status::ok) ++failures;
      }
      if (calls.wait(ticket, way.patience) != Status::ok) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failures == 0);
  CHECK(state.counts.done == kThreads * kEach);
  for (std::uint64_t at = 0; at < 8 * kThreads * kEach; at += 8) {
    std::uint64_t found = 0;
    std::memcpy(&found, bytes(theirs) + at, sizeof found);
    REQUIRE(found == at * 77 + 1);
  }
}

TEST_CASE_FIXTURE(Proxied, "each atomic of several threads has its own old value") {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kEach = 500;
  std::vector<std::vector<std::uint64_t>> old(kThreads);
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (std::uint32_t number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        std::uint64_t before = 0;
        if (calls.fetch_add(16, 3, before) != Status::ok) ++failures;
        old[number].push_back(before);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failures == 0);
  std::set<std::uint64_t> all;
  for (const auto& list : old) all.insert(list.begin(), list.end());
  CHECK(all.size() == kThreads * kEach);
  CHECK(*all.rbegin() == 3 * (kThreads * kEach - 1));
  std::uint64_t before = 0;
  REQUIRE(calls.compare_swap(16, 3 * kThreads * kEach, 5, before) == Status::ok);
  CHECK(before == 3 * kThreads * kEach);
  REQUIRE(calls.compare_swap(16, 4, 6, before) == Status::ok);
  CHECK(before == 5);
  CHECK(std::ranges::count(claims, 0U) == std::ssize(claims));
}

TEST_CASE_FIXTURE(Proxied, "a queue that goes has carried out what was posted") {
  constexpr std::uint32_t kCount = 200;
  std::iota(bytes(ours), bytes(ours) + kCount, std::uint8_t{9});
  Ticket ticket;
  for (std::uint32_t i = 0; i < kCount; ++i) REQUIRE(calls.put(i, i, 1, ticket) == Status::ok);
  proxy.reset();
  CHECK(std::equal(bytes(ours), bytes(ours) + kCount, bytes(theirs)));
}

TEST_CASE_FIXTURE(Proxied, "with the peer all fails, in time and with the reason") {
  Ticket ticket;
  REQUIRE(calls.put(0, 0, 100, ticket) == Status::ok);
  REQUIRE(calls.wait(ticket, way.patience) == Status::ok);
  right.close(soon());
  Status status = Status::ok;
  while (status == Status::ok) {
    status = calls.put(0, 0, 100, ticket);
    if (status == Status::ok) status = calls.wait(ticket, way.patience);
  }
  CHECK(status == Status::failed);
  CHECK(proxy->error().find("right") != std::string::npos);
  std::uint64_t old = 0;
  CHECK(calls.fetch_add(0, 1, old) == Status::failed);
  CHECK(calls.put(0, 0, 1, ticket) == Status::failed);
}

TEST_CASE_FIXTURE(Proxied, "entries that lie are refused") {
  const device::RingUser<CpuWords> user(way.ring);
  const auto post = [&](auto make) {
    Ticket ticket;
    const auto fill = [&](std::uint32_t index, std::uint32_t flags, std::uint32_t) {
      return make(device::mlx5::Head{way.ring.queue_pair, index, flags});
    };
    REQUIRE(user.post(1, way.patience, fill, ticket) == Status::ok);
    return user.wait(ticket, way.patience);
  };
  const device::mlx5::Range near{queue.local, 0};
  const device::mlx5::Range far{queue.remote, 0};
  const std::uint64_t value = 1;
  namespace mlx5 = device::mlx5;
  std::string why;
  SUBCASE("that leave the remote array") {
    const mlx5::Range beyond{queue.remote + kNbytes - 7, 0};
    CHECK(post([&](auto head) { return mlx5::move(head, mlx5::kWrite, beyond, near, 8); }) ==
          Status::failed);
    why = "leaves its array";
  }
  SUBCASE("that leave the local one") {
    const mlx5::Range before{queue.local - 1, 0};
    CHECK(post([&](auto head) { return mlx5::move(head, mlx5::kRead, far, before, 8); }) ==
          Status::failed);
    why = "leaves its array";
  }
  SUBCASE("that name another queue") {
    CHECK(post([&](auto head) {
            head.queue_pair += 1;
            return mlx5::move(head, mlx5::kWrite, far, near, 8);
          }) == Status::failed);
    why = "malformed";
  }
  SUBCASE("that notify a slot that is none") {
    const mlx5::Range slot{queue.notes + 65536 * 4, 0};
    CHECK(post([&](auto head) { return mlx5::write_inline(head, slot, &value, 4); }) ==
          Status::failed);
    why = "names no slot";
  }
  SUBCASE("whose old value has no place") {
    CHECK(post([&](auto head) { return mlx5::fetch_add(head, far, near, 1); }) == Status::failed);
    why = "invalid address for the old value";
  }
  CHECK(proxy->error().find(why) != std::string::npos);
  Ticket ticket;
  CHECK(calls.put(0, 0, 1, ticket) == Status::failed);
}

}  // namespace
}  // namespace zerohop::testing
