// The send ring of a direct queue pair: entries, doorbell record and doorbell register in memory
// that a GPU may get mapped, written by whoever posts and read here. There is no other protocol
// than that of mlx5 adapters (mlx5dv_init_obj):
//
//   write entries, release, record = blocks posted so far, release, register = first 8 bytes of an
//   entry
//
// Nothing that is read may be relied on: device code writes it. Guarded by QueuePair::lock, but for
// is_rung().
#pragma once

#include <infiniband/mlx5dv.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "softhca/ring_memory.hpp"
#include "softhca/wqe.hpp"

namespace zerohop::softhca {

class DirectSends {
 public:
  // Indices have 16 bits: of two that differ one must be known to be the later one.
  static constexpr std::uint32_t kMostBlocksOfRing = 1u << 15;

  // A ring of that many blocks, a power of two; at `ring`, or where null in pages of its own.
  // Throws Error.
  DirectSends(std::uint32_t qp_number, std::uint32_t blocks, std::byte* ring);

  const RingMemory& memory() const noexcept { return memory_; }
  void describe(mlx5dv_qp& out) const noexcept;

  // Whether somebody wrote to the register since answer(). Any thread may ask.
  bool is_rung() const noexcept;
  // Notes how far the record says that entries are posted. False for a doorbell that names another
  // queue pair: an adapter would take it for that one's.
  bool answer() noexcept;
  // The same where nobody rings.
  void read_record() noexcept;

  bool has_due() const noexcept { return taken_ != due_; }
  // The next entry that was announced, valid until the next call. Only while has_due().
  Wqe& take() noexcept;
  void reset() noexcept;

 private:
  std::uint32_t announced() const noexcept { return static_cast<std::uint16_t>(due_ - taken_); }
  void copy_blocks(std::uint32_t first, std::uint32_t end) noexcept;

  std::uint32_t qp_number_;
  std::uint32_t mask_;  // of the ring, in blocks
  RingMemory memory_;
  std::uint32_t* record_;    // two counters, of receives and sends; big-endian, 16 bits of each
  std::uint64_t* register_;  // 0 when it was answered
  std::uint16_t taken_ = 0;  // blocks
  std::uint16_t due_ = 0;
  // An entry is copied before it is looked at: its writer might change it meanwhile.
  alignas(8) std::array<std::byte, kMostBlocks * kBlockBytes> copy_;
  Wqe entry_;
};

}  // namespace zerohop::softhca
