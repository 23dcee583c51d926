// The send ring of a direct queue pair: entries, doorbell record and doorbell register in memory
// that may be mapped into a GPU. The poster writes them, and this side reads them. The protocol is
// that of mlx5 adapters (mlx5dv_init_obj):
//
//   write entries, release, record = blocks posted so far, release, register = first 8 bytes of an
//   entry
//
// Device code writes this memory, so no content can be trusted. Guarded by QueuePair::lock, except
// is_rung().
#pragma once

#include <infiniband/mlx5dv.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "driver/ring_copies.hpp"
#include "driver/ring_memory.hpp"
#include "softhca/wqe.hpp"

namespace zerohop::softhca {

class DirectSends {
 public:
  // Indices have 16 bits. Of two different ones it must be clear which is later.
  static constexpr std::uint32_t kMostBlocksOfRing = 1u << 15;

  // A ring of `blocks` blocks, a power of two, at `ring`, where the CPU reads them through
  // `copier` if there is one; if null, in pages of its own. Throws Error.
  DirectSends(std::uint32_t qp_number, std::uint32_t blocks, std::byte* ring,
              std::shared_ptr<driver::Copier> copier = nullptr);

  const driver::RingMemory& memory() const noexcept { return memory_; }
  void describe(mlx5dv_qp& out) const noexcept;

  // Whether the register was written since answer(). Any thread may call it.
  bool is_rung() const noexcept;
  // Reads from the record how many entries are posted. False for a doorbell that names another
  // queue pair: an adapter would ring that one.
  bool answer() noexcept;
  // The same without a doorbell.
  void read_record() noexcept;

  bool has_due() const noexcept { return taken_ != due_; }
  // The next announced entry, valid until the next call. Only while has_due().
  Wqe& take() noexcept;
  void reset() noexcept;

 private:
  std::uint32_t announced() const noexcept { return static_cast<std::uint16_t>(due_ - taken_); }
  // False if the ring's memory cannot be read.
  bool copy_blocks(std::uint32_t first, std::uint32_t end) noexcept;

  std::uint32_t qp_number_;
  std::uint32_t mask_;  // of the ring, in blocks
  driver::RingMemory memory_;
  const std::optional<driver::RingCopies> copies_;  // empty: the CPU reads the ring by itself
  std::uint32_t* record_;    // two counters, of receives and sends; big-endian, 16 bits of each
  std::uint64_t* register_;  // 0 when it was answered
  std::uint16_t taken_ = 0;  // blocks
  std::uint16_t due_ = 0;
  // An entry is copied before it is checked, because its writer might change it meanwhile.
  alignas(8) std::array<std::byte, kMostBlocks * kBlockBytes> copy_;
  Wqe entry_;
};

}  // namespace zerohop::softhca
