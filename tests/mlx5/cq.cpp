#include "cq.hpp"

#include <endian.h>
#include <rdma/ib_user_verbs.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "record.hpp"
#include "softhca/cqe.hpp"

namespace zerohop::mlx5sim {
namespace {

constexpr std::uint32_t kIndexMask = 0xffffff;  // indices in the record have 24 bits
constexpr std::size_t kConsumer = 0;            // in the record
constexpr std::size_t kArming = 1;
constexpr std::uint32_t kSolicitedOnly = 1u << 24;  // of the arming
constexpr std::uint32_t kNeverArmed = ~0u;          // no arming of a program looks like this
constexpr unsigned kOpcodeShift = 4;                // of op_own

}  // namespace

Cq::Cq(const CqRing& ring, std::uint32_t* record, std::uint64_t user_handle,
       std::shared_ptr<EventFile> channel) noexcept
    : ring_(ring),
      record_(record),
      user_handle_(user_handle),
      channel_(std::move(channel)),
      seen_arming_(kNeverArmed) {
  // The first arming may be 0, as is the record until then: libmlx5 only writes this word.
  std::atomic_ref(record_[kArming]).store(htobe32(kNeverArmed), std::memory_order_relaxed);
}

bool Cq::is_full() const noexcept {
  if (ring_.collapsed) return false;
  return ((producer_ - load_record(record_[kConsumer])) & kIndexMask) >= ring_.count;
}

bool Cq::push(const ibv_wc& completion, std::uint16_t counter, std::uint32_t user_index,
              std::span<const std::byte> data) {
  if (overrun || is_full()) return false;
  const bool owner = (producer_ & ring_.count) != 0;
  mlx5_cqe64 entry = softhca::encode_cqe(completion, counter, owner);
  // Version 1 of entries: how the program numbers its queue pairs.
  entry.srqn_uidx = htobe32(user_index);
  if (!data.empty()) {
    const bool apart =
        ring_.entry_nbytes > sizeof entry;  // in the half before; else over the front
    std::memcpy(apart ? next() : reinterpret_cast<std::byte*>(&entry), data.data(), data.size());
    entry.op_own |= apart ? MLX5_INLINE_SCATTER_64 : MLX5_INLINE_SCATTER_32;
  }
  write(entry);
  // The completions of the software HCA do not say what was solicited: all that arrives is.
  const bool arrived = (completion.opcode & IBV_WC_RECV) != 0;
  const bool counts = arrived || completion.status != IBV_WC_SUCCESS;
  if (counts) solicited_ = producer_;
  if (armed_ == Armed::any || (armed_ == Armed::solicited && counts)) fire();
  return true;
}

std::byte* Cq::next() const noexcept {
  const std::uint32_t index = ring_.collapsed ? 0 : producer_ & (ring_.count - 1);
  return ring_.at + index * ring_.entry_nbytes;
}

void Cq::write(const mlx5_cqe64& entry) noexcept {
  const auto words = std::bit_cast<std::array<std::uint64_t, 8>>(entry);
  static_assert(sizeof words == sizeof entry);
  auto* to = reinterpret_cast<std::uint64_t*>(next() + ring_.entry_nbytes - sizeof entry);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    std::atomic_ref(to[i]).store(words[i], std::memory_order_relaxed);
  }
  // Release: a reader that sees the owner bit also sees the entry and the completed data.
  std::atomic_ref(to[words.size() - 1]).store(words.back(), std::memory_order_release);
  ++producer_;
}

void Cq::look() {
  const std::uint32_t arming = load_record(record_[kArming]);
  if (arming == seen_arming_) return;
  seen_arming_ = arming;
  const std::uint32_t consumer = arming & kIndexMask;
  armed_ = (arming & kSolicitedOnly) != 0 ? Armed::solicited : Armed::any;
  // What arrived before the program armed it, and after it last looked.
  const std::uint32_t last = armed_ == Armed::any ? producer_ : solicited_;
  const std::uint32_t ahead = (last - consumer) & kIndexMask;
  if (ahead != 0 && ahead <= ring_.count) fire();
}

void Cq::fire() {
  armed_ = Armed::no;
  if (!channel_) return;
  channel_->push(ib_uverbs_comp_event_desc{.cq_handle = user_handle_}, &events_);
}

bool Cq::resize(const CqRing& ring) {
  const std::uint32_t there = (producer_ - load_record(record_[kConsumer])) & kIndexMask;
  if (there >= ring_.count || there >= ring.count) return false;
  mlx5_cqe64 entry{};
  const bool owner = (producer_ & ring_.count) != 0;
  entry.op_own = static_cast<std::uint8_t>(MLX5_CQE_RESIZE_CQ << kOpcodeShift | unsigned{owner});
  write(entry);
  ring_ = ring;
  return true;
}

std::uint32_t Cq::retire() noexcept { return channel_ ? channel_->forget(events_) : 0; }

}  // namespace zerohop::mlx5sim
