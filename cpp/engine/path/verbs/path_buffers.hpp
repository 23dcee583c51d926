// The registered memory a queue pair needs for itself: slots for messages in and out, and words for
// the results of atomics. The peer has no key to any of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/path/message.hpp"
#include "rdma/memory_region.hpp"

namespace zerohop::engine {

// What one end takes of messages, on each queue pair. It is told in Hello; the other end keeps to
// it, whatever it takes itself.
struct MessageWindow {
  // Fewer could not name a range of staged memory in a request.
  static constexpr std::uint32_t kLeastBytes = 64;
  // Message::taken counts modulo 2^16.
  static constexpr std::uint32_t kMostSlots = UINT16_MAX;

  std::uint32_t slots = 32;  // messages that the peer may have on its way
  // Payload that a message carries itself; both ends keep to the smaller. Up to here a copy at
  // either end costs less than the round trips of an offer (measured over TCP: 3 times the rate at
  // 16 KiB).
  std::uint32_t nbytes = 16384;

  std::uint32_t slot_nbytes() const noexcept { return sizeof(Message) + nbytes; }
  // How many messages are taken before the peer is told so without a message: often enough that it
  // seldom waits, seldom enough that it costs little, and that 4 such credits are on their way at
  // most.
  std::uint32_t credit_every() const noexcept { return (slots + 3) / 4; }
  // Credits use up receive requests too: 4, and one that was asked for.
  std::uint32_t receive_slots() const noexcept { return slots + 5; }
  std::uint32_t send_slots() const noexcept { return (slots + 1) / 2; }
  std::size_t all_nbytes() const noexcept {
    return std::size_t{receive_slots() + send_slots()} * slot_nbytes();
  }
};

class PathBuffers {
 public:
  // results: words for atomics, one for each entry of the send queue.
  PathBuffers(std::shared_ptr<rdma::ProtectionDomain> domain, const MessageWindow& window,
              std::uint32_t results);

  // The queue pair is gone: the device is let go of.
  void deregister() noexcept {
    slots_region_.reset();
    words_region_.reset();
  }

  std::span<std::byte> receive_slot(std::uint32_t i) const noexcept { return slot(i); }
  std::span<std::byte> send_slot(std::uint32_t i) const noexcept {
    return slot(window_.receive_slots() + i);
  }
  std::uint32_t slots_lkey() const noexcept { return slots_region_->lkey(); }

  ibv_sge result_element(std::uint32_t i) const noexcept {
    return {.addr = reinterpret_cast<std::uint64_t>(&words_[i]),
            .length = sizeof(std::uint64_t),
            .lkey = words_region_->lkey()};
  }
  std::uint64_t result(std::uint32_t i) const noexcept { return words_[i]; }

  // Registered with the device: the slots and the words.
  std::size_t nbytes() const noexcept {
    return window_.all_nbytes() + results_ * sizeof(std::uint64_t);
  }

 private:
  struct Unmap {
    std::size_t nbytes;
    void operator()(std::byte* slots) const noexcept;
  };

  std::span<std::byte> slot(std::uint32_t i) const noexcept {
    return {slots_.get() + std::size_t{i} * window_.slot_nbytes(), window_.slot_nbytes()};
  }

  const MessageWindow window_;
  const std::uint32_t results_;
  // Mapped, not allocated from the heap: pages that no message ever touched cost nothing.
  std::unique_ptr<std::byte[], Unmap> slots_;
  std::unique_ptr<std::uint64_t[]> words_;
  std::shared_ptr<rdma::MemoryRegion> slots_region_;
  std::shared_ptr<rdma::MemoryRegion> words_region_;
};

}  // namespace zerohop::engine
