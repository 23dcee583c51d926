// Slots of pinned host memory, registered with the rails, for staged transfers: one ring per device
// and Peer, made on first use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "engine/memory/host_registrations.hpp"
#include "gpu/copy_ring.hpp"

namespace zerohop::engine {

class StagingRing {
 public:
  // Two slots each for the copies, the wire, the copies at the other end, and a reserve that waits.
  static constexpr unsigned kSlots = 8;

  // device: whose memory is copied; null: the host's, by the CPU. Throws CudaError and
  // RegistrationError.
  StagingRing(std::shared_ptr<const gpu::Device> device, HostRegistrations& registrations,
              std::size_t chunk);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  std::size_t chunk() const noexcept { return chunk_; }  // bytes of a slot
  std::byte* slot(unsigned i) const noexcept { return pages_ + i * chunk_; }
  const Regions& regions() const noexcept { return *regions_; }

  std::optional<unsigned> take() noexcept;
  void give_back(unsigned i) noexcept { used_ &= ~(1u << i); }

  // Objects that a copy uses, kept as long as it may run.
  using Held = std::vector<std::shared_ptr<const void>>;
  // The slot's copies are not known to have ended: returns the slot and releases what they use once
  // they have, if ever.
  void park(unsigned i, Held held) { parked_.push_back({i, std::move(held)}); }
  // The error of query() while such copies are left, else 0. No copy starts behind them.
  int stuck() noexcept;

  // As in CopyRing and CopySlots. Copies to or from host memory are done at once.
  using Copy = gpu::CopyRing::Copy;
  using Direction = gpu::CopyRing::Direction;
  int start(unsigned i, Direction direction, std::span<const Copy> copies) noexcept;
  int query(unsigned i) noexcept { return gpu_ ? gpu_->query(i) : 0; }

 private:
  const std::size_t chunk_;
  std::optional<gpu::CopyRing> gpu_;  // or
  std::optional<Buffer> host_;
  std::byte* const pages_;
  std::shared_ptr<const Regions> regions_;  // destroyed before the pages
  unsigned used_ = 0;                       // bits
  struct Parked {
    unsigned slot;
    Held held;
  };
  std::vector<Parked> parked_;
};

}  // namespace zerohop::engine
