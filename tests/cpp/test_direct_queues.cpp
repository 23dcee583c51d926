// Queue pairs between two endpoints that kernels drive themselves; here CPU threads do, running
// kernel code.
#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "couple.hpp"
#include "cpu_words.hpp"
#include "gda/opened_way.hpp"

namespace zerohop::testing {
namespace {

using device::Status;
using device::Ticket;
using Calls = device::RingCalls<CpuWords>;

struct Direct : Couple {
  static constexpr std::int64_t kNbytes = 1 << 20;
  engine::Memory ours = left.empty({{kNbytes}}, DType{});
  engine::Memory theirs = right.empty({{kNbytes}}, DType{});
};

// What the host passes to a kernel, and what would lie in GPU memory.
struct Opened {
  explicit Opened(Direct& between)
      : reach(between.to_right->reach_directly(between.ours, between.theirs.remote(), soon())),
        queue(gda::make_ring_queue({between.left, between.to_right, between.ours, remote(between)},
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
  const engine::RemoteMemory& remote(Direct& between) { return far = between.theirs.remote(); }
  void done(Ticket ticket) const { REQUIRE(calls.wait(ticket, way.patience) == Status::ok); }

  engine::RemoteMemory far;
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
  CHECK(opened.reach.queue_pair->in_error());
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
