// The ring of a direct completion queue, in memory that may be mapped into a GPU. This side writes
// entries and the poller reads them, as with mlx5 adapters (mlx5dv_init_obj). The owner bit in the
// last byte shows a reader that an entry is new; the last 8 bytes are written at once, after all
// others. The reader stores in the record how many entries it has taken. Guarded by the lock of the
// CompletionQueue.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "driver/ring_copies.hpp"
#include "driver/ring_memory.hpp"

namespace zerohop::softhca {

class DirectCompletions {
 public:
  // A ring of `count` entries, a power of two, at `ring`, where the CPU writes them through
  // `copier` if there is one; if null, in pages of its own. Throws Error.
  DirectCompletions(std::uint32_t number, std::uint32_t count, std::byte* ring,
                    std::shared_ptr<driver::Copier> copier = nullptr);

  const driver::RingMemory& memory() const noexcept { return memory_; }
  void describe(mlx5dv_cq& out) const noexcept;

  // False if the reader has not taken the entry in the next place, or it cannot be written.
  bool push(const ibv_wc& completion) noexcept;

 private:
  bool write(std::uint32_t place, const mlx5_cqe64& entry) noexcept;

  std::uint32_t number_;
  std::uint32_t mask_;
  driver::RingMemory memory_;
  const std::optional<driver::RingCopies> copies_;  // empty: the CPU writes the ring by itself
  std::uint32_t* record_;   // two counters, of entries taken and of arming; big-endian
  std::uint32_t tail_ = 0;  // counts up without bound
};

}  // namespace zerohop::softhca
