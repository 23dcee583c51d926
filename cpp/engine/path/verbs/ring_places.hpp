// Where the rings of a queue pair that kernels drive lie: in host memory, which the GPU reaches
// across PCIe, or in the GPU's, which the adapter does (GPUrdma's table: Daoud, Watad, Silberstein,
// ROSS 2016).
#pragma once

#include <cstdint>

namespace zerohop::engine {

enum class RingPlace : std::uint8_t {
  automatic,  // on an adapter the GPU's memory where it reaches that, on software the host's
  host,
  gpu,
};

struct RingPlaces {
  RingPlace sends = RingPlace::automatic;
  RingPlace completions = RingPlace::automatic;
};

}  // namespace zerohop::engine
