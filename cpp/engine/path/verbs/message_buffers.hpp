// Memory for messages of one size, registered with devices. Peers have no key to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/path/message.hpp"
#include "rdma/memory_region.hpp"

namespace zerohop::engine {

// The receive limits of one end for each Peer. It sends them in Hello; the other end obeys them,
// whatever its own limits.
struct MessageWindow {
  // Fewer bytes could not hold a range of staged memory in a request.
  static constexpr std::uint32_t kLeastBytes = 64;
  // Message::taken counts modulo 2^16.
  static constexpr std::uint32_t kMostSlots = UINT16_MAX;

  std::uint32_t slots = 32;  // messages that the peer may have in flight
  // Payload inside a message; both ends use the smaller value. Up to this size a copy at either end
  // costs less than the round trips of an offer (measured over TCP: 3 times the rate at 16 KiB).
  std::uint32_t nbytes = 16384;

  std::uint32_t slot_nbytes() const noexcept { return sizeof(Message) + nbytes; }
  // Number of messages taken before this end returns credits without a message: often enough that
  // the peer seldom waits, seldom enough that it costs little and that at most 4 such credits are
  // in flight.
  std::uint32_t credit_every() const noexcept { return (slots + 3) / 4; }
  // Credits use receive requests too: 4, and one that was requested.
  std::uint32_t receive_slots() const noexcept { return slots + 5; }
};

// A block of buffers. They are mapped rather than allocated from the heap: pages that no message
// ever used cost nothing, unless a device pins them.
class MessageBuffers {
 public:
  // Throws RegistrationError.
  MessageBuffers(std::uint32_t count, std::uint32_t buffer_nbytes);

  // Adds a device: keys are numbered in the order of these calls; null: no keys for it.
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
