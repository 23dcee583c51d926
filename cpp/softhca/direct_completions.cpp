#include "softhca/direct_completions.hpp"

#include <endian.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <span>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "softhca/cqe.hpp"

namespace zerohop::softhca {
namespace {

constexpr std::uint32_t kTakenMask = 0xffffff;  // the counter in the record has 24 bits
constexpr std::size_t kTaken = 0;               // its index there

}  // namespace

DirectCompletions::DirectCompletions(std::uint32_t number, std::uint32_t count, std::byte* ring,
                                     std::shared_ptr<driver::Copier> copier)
    : number_(number),
      mask_(count - 1),
      memory_(count * sizeof(mlx5_cqe64), ring, 1),
      copies_(copier ? std::optional<driver::RingCopies>(std::in_place, std::move(copier))
                     : std::nullopt),
      record_(reinterpret_cast<std::uint32_t*>(memory_.page(0))) {
  const mlx5_cqe64 invalid = invalid_cqe();
  if (copies_) {
    const int error =
        copies_->fill(ring, count * sizeof invalid, std::as_bytes(std::span(&invalid, 1)));
    if (error != 0) {
      throw Error("cannot write the ring of a completion queue on a GPU (CUDA error " +
                      std::to_string(error) + ")",
                  EIO);
    }
    return;
  }
  for (std::uint32_t place = 0; place < count; ++place) write(place, invalid);
}

void DirectCompletions::describe(mlx5dv_cq& out) const noexcept {
  out.buf = memory_.ring();
  out.dbrec = record_;
  out.cqe_cnt = mask_ + 1;
  out.cqe_size = sizeof(mlx5_cqe64);
  out.cq_uar = nullptr;  // armed by ibv_req_notify_cq alone
  out.cqn = number_;
  out.comp_mask = 0;
}

bool DirectCompletions::push(const ibv_wc& completion) noexcept {
  // Acquire: the reader has finished with the entry that is overwritten.
  const std::uint32_t taken =
      be32toh(std::atomic_ref(record_[kTaken]).load(std::memory_order_acquire));
  if (((tail_ - taken) & kTakenMask) > mask_) return false;
  const bool owner = (tail_ & (mask_ + 1)) != 0;
  const auto index = static_cast<std::uint16_t>(completion.wr_id);
  if (!write(tail_ & mask_, encode_cqe(completion, index, owner))) return false;
  ++tail_;
  return true;
}

bool DirectCompletions::write(std::uint32_t place, const mlx5_cqe64& entry) noexcept {
  std::byte* const at = memory_.ring() + place * sizeof entry;
  if (copies_) return copies_->write(at, std::as_bytes(std::span(&entry, 1))) == 0;
  const auto words = std::bit_cast<std::array<std::uint64_t, 8>>(entry);
  static_assert(sizeof words == sizeof entry);
  auto* to = reinterpret_cast<std::uint64_t*>(at);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    std::atomic_ref(to[i]).store(words[i], std::memory_order_relaxed);
  }
  // Release: a reader that sees the owner bit also sees the entry and the completed data.
  std::atomic_ref(to[words.size() - 1]).store(words.back(), std::memory_order_release);
  return true;
}

}  // namespace zerohop::softhca
