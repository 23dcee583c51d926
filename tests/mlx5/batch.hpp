// Send queue entries that are posted to the software HCA together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "softhca/wqe.hpp"

namespace zerohop::mlx5sim {

struct Batch {
  static constexpr std::size_t kMost = 8;
  struct Entry {
    // Copied before it is checked, because its writer might change it meanwhile.
    alignas(8) std::array<std::byte, softhca::kMostBlocks * softhca::kBlockBytes> bytes;
    softhca::Wqe decoded;
    std::uint16_t blocks;
  };
  std::array<Entry, kMost> entries;
  std::size_t count = 0;
};

}  // namespace zerohop::mlx5sim
