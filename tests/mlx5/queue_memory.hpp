// Memory of the program in which its queues lie: the host's, or a GPU's, of which all is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "driver/ring_copies.hpp"

namespace zerohop::mlx5sim {

class QueueMemory {
 public:
  using Copies = std::shared_ptr<const driver::RingCopies>;  // null: the host's

  QueueMemory() = default;
  explicit QueueMemory(std::uint64_t address, Copies copies = nullptr) noexcept
      : QueueMemory(reinterpret_cast<std::byte*>(address), std::move(copies)) {}

  QueueMemory operator+(std::size_t nbytes) const { return QueueMemory(at_ + nbytes, copies_); }
  std::byte* address() const noexcept { return at_; }

  // A word of a doorbell record, which is big-endian. Acquire: what the program wrote before it is
  // visible. Empty: the GPU has failed.
  std::optional<std::uint32_t> word(std::size_t index) const noexcept;
  // Both return false if the GPU has failed.
  bool read(std::size_t offset, std::span<std::byte> to) const noexcept;
  // Whole words of 8 bytes, of which the last is seen behind all others.
  bool write(std::size_t offset, std::span<const std::byte> entry) const noexcept;

 private:
  QueueMemory(std::byte* at, Copies copies) noexcept : at_(at), copies_(std::move(copies)) {}

  std::byte* at_ = nullptr;
  Copies copies_;
};

}  // namespace zerohop::mlx5sim
