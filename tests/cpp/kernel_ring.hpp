// What kernels do with a ring, done by the CPU: its state and the claims beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_words.hpp"
#include "fake_copies.hpp"
#include "zerohop/ring_way.h"

namespace zerohop::testing {

class KernelRing {
 public:
  // copies: of the fake GPU in whose memory parts of the ring may lie.
  KernelRing(const device::RingWay& given, FakeCopies& copies)
      : claims_(given.ring.blocks), way(as_kernels_see(given, copies)), calls(way) {}

 private:
  static void reach(std::uint64_t& address, FakeCopies& copies) {
    if (const std::byte* at = copies.at(address)) address = reinterpret_cast<std::uint64_t>(at);
  }
  device::RingWay as_kernels_see(device::RingWay made, FakeCopies& copies) {
    made.ring.state = reinterpret_cast<std::uint64_t>(&state_);
    made.claims = reinterpret_cast<std::uint64_t>(claims_.data());
    reach(made.ring.entries, copies);
    reach(made.ring.record, copies);
    reach(made.ring.completions, copies);
    reach(made.ring.consumed, copies);
    return made;
  }

  device::RingState state_;
  std::vector<std::uint32_t> claims_;

 public:
  const device::RingWay way;
  const device::RingCalls<CpuWords> calls;
};

}  // namespace zerohop::testing
