// The registered memory a queue pair needs for itself: slots for messages in and out, and words for
// the results of atomics. The peer has no key to any of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/message.hpp"
#include "rdma/memory_region.hpp"

namespace zerohop::engine {

class PathBuffers {
 public:
  // Payload that a message carries itself. Up to here a copy at either end costs less than the
  // round trips of an offer (measured over TCP: 3 times the rate at 16 KiB).
  static constexpr std::uint32_t kEagerBytes = 16384;
  static constexpr std::uint32_t kSlotBytes = sizeof(Message) + kEagerBytes;
  static constexpr std::uint32_t kMessageSlots = 32;  // what the peer may have on its way
  // Credits (see VerbsPath) use up receive requests too. Each stands for kMessageSlots / 4 messages
  // of ours that the peer has taken, so that 4 are on their way at most, and one that was asked
  // for.
  static constexpr std::uint32_t kReceiveSlots = kMessageSlots + 5;
  static constexpr std::uint32_t kSendSlots = 16;

  // results: words for atomics, one for each entry of the send queue.
  PathBuffers(std::shared_ptr<rdma::ProtectionDomain> domain, std::uint32_t results);

  // The queue pair is gone: the device is let go of.
  void deregister() noexcept {
    slots_region_.reset();
    words_region_.reset();
  }

  std::span<std::byte> receive_slot(std::uint32_t i) const noexcept { return slot(i); }
  std::span<std::byte> send_slot(std::uint32_t i) const noexcept { return slot(kReceiveSlots + i); }
  std::uint32_t slots_lkey() const noexcept { return slots_region_->lkey(); }

  ibv_sge result_element(std::uint32_t i) const noexcept {
    return {.addr = reinterpret_cast<std::uint64_t>(&words_[i]),
            .length = sizeof(std::uint64_t),
            .lkey = words_region_->lkey()};
  }
  std::uint64_t result(std::uint32_t i) const noexcept { return words_[i]; }

 private:
  struct Unmap {
    std::size_t nbytes;
    void operator()(std::byte* slots) const noexcept;
  };

  std::span<std::byte> slot(std::uint32_t i) const noexcept {
    return {slots_.get() + std::size_t{i} * kSlotBytes, kSlotBytes};
  }

  // Mapped, not allocated from the heap: pages that no message ever touched cost nothing.
  std::unique_ptr<std::byte[], Unmap> slots_;
  std::unique_ptr<std::uint64_t[]> words_;
  std::shared_ptr<rdma::MemoryRegion> slots_region_;
  std::shared_ptr<rdma::MemoryRegion> words_region_;
};

}  // namespace zerohop::engine
