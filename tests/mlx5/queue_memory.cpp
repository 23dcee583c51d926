#include "queue_memory.hpp"

#include <endian.h>

#include <atomic>
#include <cstring>

namespace zerohop::mlx5sim {

std::optional<std::uint32_t> QueueMemory::word(std::size_t index) const noexcept {
  std::uint32_t value = 0;
  std::byte* const at = at_ + index * sizeof value;
  if (copies_) {
    if (copies_->read(std::as_writable_bytes(std::span(&value, 1)), at) != 0) return std::nullopt;
  } else {
    value = std::atomic_ref(*reinterpret_cast<std::uint32_t*>(at)).load(std::memory_order_acquire);
  }
  return be32toh(value);
}

bool QueueMemory::read(std::size_t offset, std::span<std::byte> to) const noexcept {
  if (copies_) return copies_->read(to, at_ + offset) == 0;
  std::memcpy(to.data(), at_ + offset, to.size());
  return true;
}

bool QueueMemory::write(std::size_t offset, std::span<const std::byte> entry) const noexcept {
  if (copies_) return copies_->write(at_ + offset, entry) == 0;
  auto* to = reinterpret_cast<std::uint64_t*>(at_ + offset);
  for (std::size_t at = 0; at < entry.size(); at += sizeof *to, ++to) {
    std::uint64_t word = 0;
    std::memcpy(&word, &entry[at], sizeof word);
    const bool last = at + sizeof word == entry.size();
    // Release: a reader that sees the owner bit also sees the entry and the completed data.
    std::atomic_ref(*to).store(word, last ? std::memory_order_release : std::memory_order_relaxed);
  }
  return true;
}

}  // namespace zerohop::mlx5sim
