// Slots of pinned host memory, registered with the rails, through which staged transfers pass: one
// ring for each device and Peer, made when it is first needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "engine/memory/registrations.hpp"
#include "gpu/copy_ring.hpp"

namespace zerohop::engine {

class StagingRing {
 public:
  // Enough that copies, the wire, and the copies at the other end all have one to work on, and one
  // that waits, each twice.
  static constexpr unsigned kSlots = 8;

  // device: whose memory is copied; null: the host's, by the CPU. Throws CudaError and
  // RegistrationError.
  StagingRing(std::shared_ptr<const gpu::Device> device, Registrations& registrations,
              std::size_t chunk);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  std::size_t chunk() const noexcept { return chunk_; }  // bytes of a slot
  std::byte* slot(unsigned i) const noexcept { return pages_ + i * chunk_; }
  const Regions& regions() const noexcept { return *regions_; }

  std::optional<unsigned> take() noexcept;
  void give_back(unsigned i) noexcept { used_ &= ~(1u << i); }

  // What a copy uses for as long as it may run.
  using Held = std::vector<std::shared_ptr<const void>>;
  // The copies of that slot have not ended as far as is known: it is given back, and what they use
  // let go of, when they have; if that is never, never.
  void park(unsigned i, Held held) { parked_.push_back({i, std::move(held)}); }
  // Not 0 while such copies are left: what query() said of one. Nothing is started behind them.
  int stuck() noexcept;

  // As of CopyRing, and CopySlots. To or from memory of the host it is done at once.
  using Copy = gpu::CopyRing::Copy;
  using Direction = gpu::CopyRing::Direction;
  int start(unsigned i, Direction direction, std::span<const Copy> copies) noexcept;
  int query(unsigned i) noexcept { return gpu_ ? gpu_->query(i) : 0; }

 private:
  const std::size_t chunk_;
  std::optional<gpu::CopyRing> gpu_;  // or
  std::optional<Buffer> host_;
  std::byte* const pages_;
  std::shared_ptr<const Regions> regions_;  // ends before the pages do
  unsigned used_ = 0;                       // bits
  struct Parked {
    unsigned slot;
    Held held;
  };
  std::vector<Parked> parked_;
};

}  // namespace zerohop::engine
