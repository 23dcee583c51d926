// The registered memory a queue pair needs for itself: slots for messages in and out, words for the
// results of atomics, and the word in which the peer reports the receive slots it has emptied.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "rdma/memory_region.hpp"

namespace zerohop::engine {

class PathBuffers {
 public:
  static constexpr std::uint32_t kSlotBytes =
      4096;  // one page: a message and up to 4064 bytes of payload
  static constexpr std::uint32_t kReceiveSlots = 32;
  static constexpr std::uint32_t kSendSlots = 16;

  // results: words for atomics, one for each entry of the send queue.
  PathBuffers(std::shared_ptr<rdma::ProtectionDomain> domain, std::uint32_t results);

  std::span<std::byte> receive_slot(std::uint32_t i) const noexcept { return slot(i); }
  std::span<std::byte> send_slot(std::uint32_t i) const noexcept { return slot(kReceiveSlots + i); }
  std::uint32_t slots_lkey() const noexcept { return slots_region_->lkey(); }

  ibv_sge result_element(std::uint32_t i) const noexcept {
    return {.addr = reinterpret_cast<std::uint64_t>(&words_[i]),
            .length = sizeof(std::uint64_t),
            .lkey = words_region_->lkey()};
  }
  std::uint64_t result(std::uint32_t i) const noexcept { return words_[i]; }

  // Written by the peer: how many messages it has taken out of its receive slots since the
  // beginning.
  std::uint64_t credits_address() const noexcept {
    return reinterpret_cast<std::uint64_t>(credits_.get());
  }
  std::uint32_t credits_rkey() const noexcept { return credits_region_->rkey(); }
  std::uint64_t credits() const noexcept { return credits_->load(std::memory_order_acquire); }
  void reset_credits() noexcept { credits_->store(0, std::memory_order_release); }

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
  std::unique_ptr<std::atomic<std::uint64_t>> credits_;
  std::shared_ptr<rdma::MemoryRegion> slots_region_;
  std::shared_ptr<rdma::MemoryRegion> words_region_;
  std::shared_ptr<rdma::MemoryRegion> credits_region_;  // the only one that the peer may write
};

}  // namespace zerohop::engine
