#include "cq.hpp"

#include <endian.h>
#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

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

Cq::Cq(CqRing ring, QueueMemory record, std::uint64_t user_handle,
       std::shared_ptr<EventFile> channel) noexcept
    : ring_(std::move(ring)),
      record_(std::move(record)),
      user_handle_(user_handle),
      channel_(std::move(channel)),
      seen_arming_(kNeverArmed) {
  if (!channel_) return;  // nobody arms it
  // The first arming may be 0, as is the record until then: libmlx5 only writes this word.
  const std::array<std::uint32_t, 2> words{0, htobe32(kNeverArmed)};
  record_.write(0, std::as_bytes(std::span(words)));
}

// Entries that the program has not taken: all, if a GPU does not say.
std::uint32_t Cq::unread() const noexcept {
  const auto consumer = record_.word(kConsumer);
  return consumer ? (producer_ - *consumer) & kIndexMask : ring_.count;
}

bool Cq::push(const ibv_wc& completion, std::uint16_t counter, std::uint32_t user_index,
              std::span<const std::byte> data) {
  if (overrun || (!ring_.collapsed && unread() >= ring_.count)) return false;
  const bool owner = (producer_ & ring_.count) != 0;
  mlx5_cqe64 entry = softhca::encode_cqe(completion, counter, owner);
  // Version 1 of entries: how the program numbers its queue pairs.
  entry.srqn_uidx = htobe32(user_index);
  const bool apart = ring_.entry_nbytes > sizeof entry;  // data in the half before; else over it
  if (!data.empty()) entry.op_own |= apart ? MLX5_INLINE_SCATTER_64 : MLX5_INLINE_SCATTER_32;
  std::array<std::byte, 2 * sizeof entry> halves{};
  const std::span second = std::span(halves).subspan(sizeof entry);
  std::memcpy(second.data(), &entry, sizeof entry);
  const std::span whole = apart && !data.empty() ? std::span(halves) : second;
  std::ranges::copy(data, whole.begin());
  if (!write(whole)) return false;
  // The completions of the software HCA do not say what was solicited: all that arrives is.
  const bool arrived = (completion.opcode & IBV_WC_RECV) != 0;
  const bool counts = arrived || completion.status != IBV_WC_SUCCESS;
  if (counts) solicited_ = producer_;
  if (armed_ == Armed::any || (armed_ == Armed::solicited && counts)) fire();
  return true;
}

bool Cq::write(std::span<const std::byte> entry) noexcept {
  const std::uint32_t index = ring_.collapsed ? 0 : producer_ & (ring_.count - 1);
  const std::size_t end = std::size_t{index + 1} * ring_.entry_nbytes;
  if (!ring_.memory.write(end - entry.size(), entry)) return false;
  ++producer_;
  return true;
}

void Cq::look() {
  if (!channel_) return;
  const std::uint32_t arming = record_.word(kArming).value_or(seen_arming_);
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
  channel_->push(ib_uverbs_comp_event_desc{.cq_handle = user_handle_}, &events_);
}

bool Cq::resize(const CqRing& ring) {
  if (unread() >= std::min(ring_.count, ring.count)) return false;
  mlx5_cqe64 entry{};
  const bool owner = (producer_ & ring_.count) != 0;
  entry.op_own = static_cast<std::uint8_t>(MLX5_CQE_RESIZE_CQ << kOpcodeShift | unsigned{owner});
  if (!write(std::as_bytes(std::span(&entry, 1)))) return false;
  ring_ = ring;
  return true;
}

std::uint32_t Cq::retire() noexcept { return channel_ ? channel_->forget(events_) : 0; }

}  // namespace zerohop::mlx5sim
