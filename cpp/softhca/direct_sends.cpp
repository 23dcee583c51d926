#include "softhca/direct_sends.hpp"

#include <endian.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <utility>

namespace zerohop::softhca {
DirectSends::DirectSends(std::uint32_t qp_number, std::uint32_t blocks, std::byte* ring,
                         std::shared_ptr<driver::Copier> copier)
    : qp_number_(qp_number),
      mask_(blocks - 1),
      memory_(blocks * kBlockBytes, ring, 2),
      copies_(copier ? std::optional<driver::RingCopies>(std::in_place, std::move(copier))
                     : std::nullopt),
      record_(reinterpret_cast<std::uint32_t*>(memory_.page(0))),
      register_(reinterpret_cast<std::uint64_t*>(memory_.page(1))) {}

void DirectSends::describe(mlx5dv_qp& out) const noexcept {
  out.dbrec = record_;
  out.sq = {memory_.ring(), mask_ + 1, kBlockBytes};
  out.rq = {};
  out.bf = {register_, 0};  // size 0: takes doorbells, no entries (BlueFlame)
  out.comp_mask = 0;
}

bool DirectSends::is_rung() const noexcept {
  return std::atomic_ref(*register_).load(std::memory_order_relaxed) != 0;
}

bool DirectSends::answer() noexcept {
  // Acquire: writes before the doorbell are visible below and in take(). The register is cleared
  // before the record is read, so a later announcement rings again.
  const std::uint64_t rung = std::atomic_ref(*register_).exchange(0, std::memory_order_acq_rel);
  if (rung == 0) return false;
  std::array<std::uint32_t, 2> words;  // of a control segment
  std::memcpy(words.data(), &rung, sizeof rung);
  if (be32toh(words[1]) >> 8 != qp_number_) return false;
  read_record();
  return true;
}

void DirectSends::read_record() noexcept {
  const std::uint32_t posted =
      std::atomic_ref(record_[MLX5_SND_DBR]).load(std::memory_order_acquire);
  due_ = static_cast<std::uint16_t>(be32toh(posted));
}

bool DirectSends::copy_blocks(std::uint32_t first, std::uint32_t end) noexcept {
  for (std::uint32_t block = first; block < end; ++block) {
    const std::size_t place = (taken_ + block) & mask_;
    std::byte* const at = memory_.ring() + place * kBlockBytes;
    if (copies_) {
      if (copies_->read(std::span(copy_).subspan(block * kBlockBytes, kBlockBytes), at) != 0)
        return false;
      continue;
    }
    auto* from = reinterpret_cast<std::uint64_t*>(at);
    for (std::size_t byte = 0; byte < kBlockBytes; byte += sizeof(std::uint64_t), ++from) {
      const std::uint64_t word = std::atomic_ref(*from).load(std::memory_order_relaxed);
      std::memcpy(&copy_[block * kBlockBytes + byte], &word, sizeof word);
    }
  }
  return true;
}

Wqe& DirectSends::take() noexcept {
  const std::uint32_t most = announced();
  bool read = copy_blocks(0, 1);
  std::uint32_t blocks = read ? wqe_blocks(std::span(copy_).first<kBlockBytes>()) : most;
  blocks = std::min({blocks, most, kMostBlocks});
  read = read && copy_blocks(1, blocks);
  if (!read) copy_ = {};  // is refused, as no entry
  decode_wqe(std::span(copy_).first(blocks * kBlockBytes), qp_number_, taken_, entry_);
  // More than the ring holds: entries were overwritten before they were taken.
  if (most > mask_ + 1) {
    refuse_wqe(entry_, IBV_WC_LOC_QP_OP_ERR);
    blocks = most;
  }
  taken_ = static_cast<std::uint16_t>(taken_ + blocks);
  return entry_;
}

void DirectSends::reset() noexcept {
  taken_ = due_ = 0;
  std::atomic_ref(*register_).store(0, std::memory_order_relaxed);
  std::atomic_ref(record_[MLX5_RCV_DBR]).store(0, std::memory_order_relaxed);
  std::atomic_ref(record_[MLX5_SND_DBR]).store(0, std::memory_order_release);
}

}  // namespace zerohop::softhca
