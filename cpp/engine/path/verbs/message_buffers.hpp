// Memory for messages of one size, registered with devices. The peers have no key to any of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/path/message.hpp"
#include "rdma/memory_region.hpp"

namespace zerohop::engine {

// What one end takes of messages from each Peer. It says so in Hello; the other end keeps to it,
// whatever it takes itself.
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
};

// A block of buffers. They are mapped, not allocated from the heap: pages that no message ever
// touched cost nothing, unless a device pins them.
class MessageBuffers {
 public:
  // Throws RegistrationError.
  MessageBuffers(std::uint32_t count, std::uint32_t buffer_nbytes);

  // With one more device: the keys are numbered in the order of these calls; null: none with it.
  void add_device(const std::shared_ptr<rdma::ProtectionDomain>& domain);
  void deregister() noexcept {
    for (auto& region : regions_) region.reset();
  }

  std::span<std::byte> buffer(std::uint32_t i) const noexcept {
    return {bytes_.get() + std::size_t{i} * buffer_nbytes_, buffer_nbytes_};
  }
  std::uint32_t lkey(std::size_t device) const noexcept {
    return regions_[device] ? regions_[device]->lkey() : 0;
  }
  std::size_t nbytes() const noexcept { return nbytes_; }

 private:
  struct Unmap {
    std::size_t nbytes;
    void operator()(std::byte* bytes) const noexcept;
  };

  const std::uint32_t buffer_nbytes_;
  const std::size_t nbytes_;
  std::unique_ptr<std::byte[], Unmap> bytes_;
  std::vector<std::shared_ptr<rdma::MemoryRegion>> regions_;
};

}  // namespace zerohop::engine
