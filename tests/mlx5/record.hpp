// Doorbell records: big-endian words in memory that the program writes.
#pragma once

#include <endian.h>

#include <atomic>
#include <cstdint>

namespace zerohop::mlx5sim {

// Acquire: what the program wrote before it is visible.
inline std::uint32_t load_record(const std::uint32_t& word) noexcept {
  return be32toh(std::atomic_ref(const_cast<std::uint32_t&>(word)).load(std::memory_order_acquire));
}

}  // namespace zerohop::mlx5sim
