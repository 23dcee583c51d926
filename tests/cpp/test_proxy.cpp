// Queues between two endpoints, driven by CPU threads that run kernel code: executed by a thread of
// the host, and by the software HCA directly.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "couple.hpp"
#include "cpu_words.hpp"
#include "gda/opened_way.hpp"
#include "gda/proxy.hpp"

namespace zerohop::testing {
namespace {

using device::Status;
using device::Ticket;

struct Proxied : Couple {
  using Calls = device::RingCalls<CpuWords>;
  static constexpr std::int64_t kNbytes = 1 << 22;

  engine::Memory ours = left.empty({{kNbytes}}, DType{});
  engine::Memory theirs = right.empty({{kNbytes}}, DType{});
  std::unique_ptr<gda::Proxy> proxy = std::make_unique<gda::Proxy>(ends());
  device::RingState state;
  std::vector<std::uint32_t> claims = std::vector<std::uint32_t>(gda::ProxyRing::kBlocks);
  device::Queue queue{.local = ours.layout().address,
                      .local_nbytes = kNbytes,
                      .remote = theirs.layout().address,
                      .remote_nbytes = kNbytes,
                      .notes = gda::ProxyCalls::kNotes};
  device::RingWay way = ring_way();
  Calls calls{way};

  gda::ProxyEnds ends() {
    constexpr std::int64_t kValues = gda::ProxyRing::kBlocks * gda::kValueNbytes;
    return {.peer = to_right,
            .local = ours,
            .remote = theirs.remote(),
            .values = left.empty({{kValues}}, DType{})};
  }
  device::RingWay ring_way() {
    device::RingWay made = proxy->ring().describe();
    made.ring.state = reinterpret_cast<std::uint64_t>(&state);
    made.claims = reinterpret_cast<std::uint64_t>(claims.data());
    made.local = queue.local;
    made.remote = queue.remote;
    made.notes = queue.notes;
    made.patience = static_cast<std::uint64_t>(kTimeout * 1e9);
    return made;
  }
  static std::uint8_t* bytes(const engine::Memory& memory) {
    return reinterpret_cast<std::uint8_t*>(memory.layout().address);
  }
};

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
  CHECK(contains(proxy->error(), "right"));
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
  CHECK(contains(proxy->error(), why));
  Ticket ticket;
  CHECK(calls.put(0, 0, 1, ticket) == Status::failed);
}

// --- without the thread ---

using Calls = device::RingCalls<CpuWords>;

struct Direct : Couple {
  static constexpr std::int64_t kNbytes = 1 << 20;
  engine::Memory ours = left.empty({{kNbytes}}, DType{});
  engine::Memory theirs = right.empty({{kNbytes}}, DType{});
};

// What the host passes to a kernel, and what would lie in GPU memory.
struct Opened {
  explicit Opened(Direct& between)
      : there(between.theirs.remote()),
        reach(between.to_right->kernels().direct({&between.ours, &there}, {}, soon())),
        queue(gda::make_ring_queue({between.left, between.to_right, between.ours, there},
                                   reach.entries)) {
    queue.notes = reach.slots;
  }
  device::RingWay make_way() {
    device::RingWay made = gda::describe(reach);
    claims.resize(made.ring.blocks);
    made.ring.state = reinterpret_cast<std::uint64_t>(&state);
    made.claims = reinterpret_cast<std::uint64_t>(claims.data());
    made.local = queue.local;
    made.remote = queue.remote;
    made.notes = reach.slots;
    made.patience = static_cast<std::uint64_t>(kTimeout * 1e9);
    return made;
  }
  void done(Ticket ticket) const { REQUIRE(calls.wait(ticket, way.patience) == Status::ok); }

  engine::RemoteMemory there;
  engine::DirectReach reach;
  device::Queue queue;
  device::RingState state;
  std::vector<std::uint32_t> claims;
  device::RingWay way = make_way();
  Calls calls{way};
};

std::uint8_t* bytes(const engine::Memory& memory) {
  return reinterpret_cast<std::uint8_t*>(memory.layout().address);
}

TEST_CASE_FIXTURE(Direct, "put, get, atomics and notifications") {
  const Opened opened(*this);
  CHECK(opened.queue.rights == (device::kPut | device::kGet | device::kAtomics));
  std::iota(bytes(ours), bytes(ours) + kNbytes, std::uint8_t{1});
  Ticket ticket;
  REQUIRE(opened.calls.put_notify(0, 0, kNbytes, 7, 70, ticket) == Status::ok);
  CHECK(right.wait_notify(7, 1, true, soon()).second == 70);
  CHECK(std::equal(bytes(ours), bytes(ours) + kNbytes, bytes(theirs)));
  opened.done(ticket);
  REQUIRE(opened.calls.get(0, 100, 1000, ticket) == Status::ok);
  opened.done(ticket);
  CHECK(std::equal(bytes(theirs), bytes(theirs) + 1000, bytes(ours) + 100));
  std::uint64_t before = 0;
  std::uint64_t old = 0;
  std::memcpy(&before, bytes(theirs) + 8, sizeof before);
  REQUIRE(opened.calls.fetch_add(8, 5, old) == Status::ok);
  CHECK(old == before);
  REQUIRE(opened.calls.compare_swap(8, before + 5, 1, old) == Status::ok);
  CHECK(old == before + 5);
}

TEST_CASE_FIXTURE(Direct, "a note comes behind its data, many times around the ring") {
  const Opened opened(*this);
  Ticket ticket;
  for (std::uint32_t round = 1; round <= 3 * opened.way.ring.blocks; ++round) {
    std::fill_n(bytes(ours), 300, static_cast<std::uint8_t>(round));
    REQUIRE(opened.calls.put_notify(0, 0, 300, 1, round, ticket) == Status::ok);
    REQUIRE(right.wait_notify(1, 1, true, soon()).second == round);
    REQUIRE(std::equal(bytes(ours), bytes(ours) + 300, bytes(theirs)));
    opened.done(ticket);
  }
}

TEST_CASE_FIXTURE(Direct, "a sleeper hears what wakes nobody") {
  const Opened opened(*this);
  std::uint32_t heard = 0;
  std::thread sleeper([&] { heard = right.wait_notify(60000, 1, true, soon()).second; });
  // It sleeps after a while, whichever comes first.
  Ticket ticket;
  REQUIRE(opened.calls.notify(60000, 8, ticket) == Status::ok);
  sleeper.join();
  CHECK(heard == 8);
}

TEST_CASE_FIXTURE(Direct, "several queues at once, each by threads, many times around") {
  constexpr std::uint32_t kQueues = 3;
  constexpr std::uint32_t kThreads = 2;
  constexpr std::uint32_t kEach = 3000;
  std::vector<std::unique_ptr<Opened>> queues;
  for (std::uint32_t i = 0; i < kQueues; ++i) queues.push_back(std::make_unique<Opened>(*this));
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (std::uint32_t number = 0; number < kQueues * kThreads; ++number) {
    threads.emplace_back([&, number] {
      const Opened& mine = *queues[number % kQueues];
      Ticket ticket;
      for (std::uint32_t i = 0; i < kEach; ++i) {
        const std::uint64_t at = 8 * (number * kEach + i);
        const std::uint64_t value = at * 31 + 1;
        if (mine.calls.put_value(at, &value, sizeof value, ticket) != Status::ok) ++failures;
      }
      if (mine.calls.wait(ticket, mine.way.patience) != Status::ok) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failures == 0);
  for (std::uint64_t at = 0; at < 8 * kQueues * kThreads * kEach; at += 8) {
    std::uint64_t found = 0;
    std::memcpy(&found, bytes(theirs) + at, sizeof found);
    REQUIRE(found == at * 31 + 1);
  }
}

TEST_CASE_FIXTURE(Direct, "it fails in time when the peer goes, and when the memory does") {
  const Opened opened(*this);
  Ticket ticket;
  REQUIRE(opened.calls.put(0, 0, 8, ticket) == Status::ok);
  opened.done(ticket);
  SUBCASE("the peer") { right.close(soon()); }
  SUBCASE("the memory") { theirs.close(); }
  Status status = Status::ok;
  while (status == Status::ok) {
    status = opened.calls.put(0, 0, 8, ticket);
    if (status == Status::ok) status = opened.calls.wait(ticket, opened.way.patience);
  }
  CHECK(status == Status::failed);
  CHECK(!opened.reach.queue_pair->failure().empty());
}

TEST_CASE_FIXTURE(Direct, "what a queue takes of the peer is given back with it") {
  // As many as it hands out at once, several times over.
  for (int i = 0; i < 600; ++i) {
    const Opened opened(*this);
    CHECK(opened.queue.notes != 0);
  }
  std::vector<std::unique_ptr<Opened>> many;
  for (int i = 0; i < 128; ++i) many.push_back(std::make_unique<Opened>(*this));
  CHECK_THROWS_WITH_AS(Opened(*this), doctest::Contains("close some"), RouteUnavailable);
}

}  // namespace
}  // namespace zerohop::testing
