// The ring of a direct completion queue, in memory that a GPU may get mapped: entries written here
// and read by whoever polls, as mlx5 adapters do it (mlx5dv_init_obj). A reader knows a new entry
// by the owner bit of its last byte; the last 8 bytes are written at once, behind all others. It
// tells in the record how many it has taken. Guarded by the lock of the CompletionQueue.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>

#include "softhca/ring_memory.hpp"

namespace zerohop::softhca {

class DirectCompletions {
 public:
  // A ring of that many entries, a power of two; at `ring`, or where null in pages of its own.
  // Throws Error.
  DirectCompletions(std::uint32_t number, std::uint32_t count, std::byte* ring);

  const RingMemory& memory() const noexcept { return memory_; }
  void describe(mlx5dv_cq& out) const noexcept;

  // False when the reader has not taken what lies in the next place.
  bool push(const ibv_wc& completion) noexcept;

 private:
  void write(std::uint32_t place, const mlx5_cqe64& entry) noexcept;

  std::uint32_t number_;
  std::uint32_t mask_;
  RingMemory memory_;
  std::uint32_t* record_;   // two counters, of entries taken and of arming; big-endian
  std::uint32_t tail_ = 0;  // counts up without bound
};

}  // namespace zerohop::softhca
