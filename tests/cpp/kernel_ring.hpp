// What kernels do with a ring, done by the CPU: its state and the claims beside it. Parts of it may
// lie in a fake GPU's memory, which only kernels and copies reach.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_words.hpp"
#include "fake_copies.hpp"
#include "zerohop/ring_way.h"

namespace zerohop::testing {

struct KernelWords {
  inline static FakeCopies* gpu = nullptr;

  static std::uint64_t reached(std::uint64_t at) {
    const std::byte* const there = gpu->at(at);
    return there != nullptr ? reinterpret_cast<std::uint64_t>(there) : at;
  }
  static std::uint32_t load(std::uint64_t at) { return CpuWords::load(reached(at)); }
  static device::RingCounts counts(std::uint64_t at) { return CpuWords::counts(reached(at)); }
  static void store(std::uint64_t at, std::uint32_t value) { CpuWords::store(reached(at), value); }
  static bool swap(std::uint64_t at, std::uint32_t expected, std::uint32_t desired) {
    return CpuWords::swap(reached(at), expected, desired);
  }
  static std::uint64_t arrival(std::uint64_t at) { return CpuWords::arrival(reached(at)); }
  static void block(std::uint64_t at, const device::mlx5::Block& block) {
    CpuWords::block(reached(at), block);
  }
  static void record(std::uint64_t at, std::uint32_t value) {
    CpuWords::record(reached(at), value);
  }
  static void ring(std::uint64_t at, std::uint64_t value) { CpuWords::ring(reached(at), value); }
  static std::uint64_t nanoseconds() { return CpuWords::nanoseconds(); }
  static void relax() { CpuWords::relax(); }
};

class KernelRing {
 public:
  KernelRing(const device::RingWay& given, FakeCopies& copies)
      : claims_(given.ring.blocks), way(with_state(given)), calls(way) {
    KernelWords::gpu = &copies;
  }

 private:
  device::RingWay with_state(device::RingWay made) {
    made.ring.state = reinterpret_cast<std::uint64_t>(&state_);
    made.claims = reinterpret_cast<std::uint64_t>(claims_.data());
    return made;
  }

  device::RingState state_;
  std::vector<std::uint32_t> claims_;

 public:
  const device::RingWay way;
  const device::RingCalls<KernelWords> calls;
};

// As many small puts as completions take to turn twice, one after the other, and then as many at
// once as the ring holds.
inline void turn(const KernelRing& ring) {
  device::Ticket ticket;
  std::uint64_t value = 0;
  const auto put = [&] { return ring.calls.put_value(0, &value, sizeof value, ticket); };
  for (; value < 2 * ring.way.ring.places + 9; ++value) {
    REQUIRE(put() == device::Status::ok);
    REQUIRE(ring.calls.wait(ticket, ring.way.patience) == device::Status::ok);
  }
  for (std::uint32_t i = 0; i < ring.way.ring.blocks; ++i) {
    REQUIRE(put() == device::Status::ok);
  }
  REQUIRE(ring.calls.wait(ticket, ring.way.patience) == device::Status::ok);
}

}  // namespace zerohop::testing
