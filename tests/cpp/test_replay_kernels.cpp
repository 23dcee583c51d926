// The kernels of captured notifications and waits, run by CPU threads.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "cpu_kernels/cuda.hpp"
#include "gpu/kernels/replayed_notes.cu"

namespace zerohop::testing {
namespace {

using gpu::Note;

template <typename T>
std::uint64_t address(T& at) {
  return reinterpret_cast<std::uint64_t>(&at);
}

// One slot: of the writer, and of the reader.
struct Slot {
  std::uint32_t gate = 0;
  std::uint32_t count = 0;
  std::uint32_t placed = 0;
  Note mirror = 0;
  Note note = 0;
  std::uint32_t word = 0;
  std::uint32_t taken = 0;
  std::uint32_t closed = 0;
  gpu::WaitFault fault{};
  std::uint32_t faults = 0;
  std::uint64_t nanoseconds = 20'000'000'000;

  void put(std::uint32_t first = 1, std::uint32_t writer = 5) {
    zerohop_replayed_note({.gate = address(gate),
                           .count = address(count),
                           .placed = address(placed),
                           .mirror = address(mirror),
                           .slot = address(note),
                           .replaced = address(word),
                           .writer = writer * gpu::kFirstTag | gpu::kCounted,
                           .value = first});
  }
  gpu::ReplayedWait waiting() {
    return {.word = address(word),
            .note = address(mirror),
            .taken = address(taken),
            .closed = address(closed),
            .fault = address(fault),
            .faults = address(faults),
            .nanoseconds = nanoseconds};
  }
  void wait() { zerohop_replayed_wait(waiting()); }
  // Whether a wait finds something at once.
  bool finds() {
    nanoseconds = 0;
    const std::uint32_t before = fault.count;
    wait();
    return fault.count == before;
  }
};

}  // namespace

TEST_CASE("values and tags count on, and skip 0") {
  Slot slot;
  slot.put(0xFFFFFFFE);
  CHECK(gpu::value_of(slot.note) == 0xFFFFFFFE);
  const std::uint32_t tag = gpu::tag_of(slot.note);
  slot.put(0xFFFFFFFE);
  CHECK(gpu::value_of(slot.note) == 0xFFFFFFFF);
  CHECK(gpu::tag_of(slot.note) == tag + 1);
  slot.put(0xFFFFFFFE);
  CHECK(gpu::value_of(slot.note) == 1);
  CHECK(slot.mirror == slot.note);
  slot.count = slot.placed = device::kCounts - 1;  // the tag's count begins again
  slot.put();
  CHECK(gpu::tag_of(slot.note) == (tag & ~(device::kCounts - 1)));
}

TEST_CASE("behind a closed gate nothing is put") {
  Slot slot;
  slot.gate = 1;
  slot.put();
  CHECK(slot.note == 0);
  CHECK(slot.count == 0);
}

TEST_CASE("as many waits find something as there were notifications") {
  Slot slot;
  for (const unsigned times : {1U, 3U, 200U}) {
    for (unsigned i = 0; i < times; ++i) slot.put();
    for (unsigned i = 0; i < times; ++i) REQUIRE(slot.finds());
    CHECK_FALSE(slot.finds());
  }
  CHECK(slot.mirror == 0);
  CHECK(slot.fault.outcome == gpu::kTimedOut);
}

TEST_CASE("the count of tags may begin again in between") {
  Slot slot;
  slot.count = slot.placed = device::kCounts - 2;
  slot.taken = 5 * gpu::kFirstTag | gpu::kCounted | (device::kCounts - 2);
  for (int i = 0; i < 4; ++i) slot.put();
  for (int i = 0; i < 4; ++i) REQUIRE(slot.finds());
  CHECK_FALSE(slot.finds());
}

TEST_CASE("where it is unknown what was taken, or the writer is another, one note is one") {
  Slot slot;
  slot.taken = 0x01010101U * gpu::kUnknownTaken;
  for (int i = 0; i < 3; ++i) slot.put();
  CHECK(slot.finds());
  CHECK_FALSE(slot.finds());
  slot.put();
  slot.put();
  CHECK(slot.finds());
  CHECK(slot.finds());
  slot.count = slot.placed = 40;
  slot.put(1, 6);
  CHECK(slot.finds());
  CHECK_FALSE(slot.finds());
}

TEST_CASE("a note taken already stays taken") {
  Slot slot;
  slot.put();
  const Note stale = slot.mirror;
  CHECK(slot.finds());
  slot.mirror = stale;
  CHECK_FALSE(slot.finds());
}

TEST_CASE("notes that do not count, and values of CPUs") {
  Slot slot;
  slot.mirror = gpu::make_note(7, 3 * gpu::kFirstTag + 1);
  CHECK(slot.finds());
  CHECK(slot.mirror == 0);
  slot.word = 8;
  CHECK(slot.finds());
  CHECK(slot.word == 0);
  CHECK_FALSE(slot.finds());
}

TEST_CASE("waits end when nothing will come, but take what came before") {
  Slot slot;
  slot.put();
  slot.closed = 1;
  slot.wait();
  CHECK(slot.fault.count == 0);
  slot.wait();
  CHECK(slot.fault.outcome == gpu::kCancelled);
  CHECK(slot.fault.count == 1);
  CHECK(slot.faults != 0);
}

TEST_CASE("how a wait ended, and how often it did, change as one") {
  constexpr unsigned kTimes = 20000;
  Slot slot;
  slot.nanoseconds = 0;
  std::atomic<bool> over{false};
  std::atomic<unsigned> mixed{0};
  std::jthread watcher([&] {
    while (!over) {
      const gpu::WaitFault seen = std::atomic_ref(slot.fault).load();
      if (seen.count != 0 && seen.outcome != (seen.count % 2 ? gpu::kTimedOut : gpu::kCancelled)) {
        ++mixed;
      }
    }
  });
  for (unsigned time = 0; time < kTimes; ++time) {
    slot.closed = time % 2;
    slot.wait();
  }
  over = true;
  watcher.join();
  CHECK(mixed == 0);
  CHECK(slot.fault.count == kTimes);
  CHECK(slot.faults == kTimes);
}

TEST_CASE("a wait for a number, which may have been passed") {
  Slot slot;
  slot.nanoseconds = 0;
  auto wait = slot.waiting();
  wait.note = 0;
  wait.awaited = gpu::Awaited::number;
  wait.number = 5;
  slot.word = 4;
  zerohop_replayed_wait(wait);
  CHECK(slot.fault.count == 1);
  slot.word = 6;
  zerohop_replayed_wait(wait);
  CHECK(slot.fault.count == 1);
  CHECK(slot.word == 6);
}

TEST_CASE("two graphs that notify one slot put their notes in the order of their counts") {
  constexpr unsigned kTimes = 2000;
  Slot slot;
  std::atomic<bool> over{false};
  std::atomic<unsigned> backwards{0};
  std::jthread watcher([&] {
    std::uint32_t latest = 0;
    while (!over) {
      const std::uint32_t value = gpu::value_of(std::atomic_ref(slot.note).load());
      if (value < latest) ++backwards;
      latest = value;
    }
  });
  {
    const auto writes = [&slot] {
      for (unsigned i = 0; i < kTimes; ++i) slot.put();
    };
    const std::jthread one(writes);
    const std::jthread other(writes);
  }
  over = true;
  watcher.join();
  CHECK(backwards == 0);
  CHECK(gpu::value_of(slot.note) == 2 * kTimes);
}

TEST_CASE("a writer and two executables of a graph that waits, at the same time") {
  constexpr unsigned kTimes = 2000;
  Slot slot;
  std::atomic<unsigned> passed{0};
  std::vector<std::jthread> threads;
  threads.emplace_back([&] {
    for (unsigned i = 0; i < kTimes; ++i) slot.put();
  });
  std::vector<gpu::WaitFault> faults(2);
  for (auto& fault : faults) {
    threads.emplace_back([&slot, &passed, &fault] {
      auto wait = slot.waiting();
      wait.fault = address(fault);
      for (unsigned i = 0; i < kTimes / 2; ++i, ++passed) zerohop_replayed_wait(wait);
    });
  }
  threads.clear();
  CHECK(passed == kTimes);
  for (const auto& fault : faults) CHECK(fault.count == 0);
  CHECK_FALSE(slot.finds());
}

}  // namespace zerohop::testing
