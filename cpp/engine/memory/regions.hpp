// The registrations of one memory range, at most one per rail.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/layout.hpp"
#include "base/locks.hpp"
#include "engine/memory/staged_memories.hpp"
#include "engine/rail.hpp"
#include "rdma/memory_region.hpp"
#include "shm/exposures.hpp"

namespace zerohop::engine {

class Regions {
 public:
  void set(RailIndex rail, std::shared_ptr<rdma::MemoryRegion> region) {
    if (!region) return;
    covered_.begin = std::max(covered_.begin, region->address());
    covered_.end = std::min(covered_.end, region->address() + region->nbytes());
    if (empty_) access_ = region->access();
    empty_ = false;
    lkeys_[rail] = region->lkey();
    by_rail_[rail] = std::move(region);
  }

  // Lets processes of this host access the range without a device; may be null.
  void set_exposure(std::shared_ptr<shm::Exposure> exposure) { exposure_ = std::move(exposure); }
  const std::shared_ptr<shm::Exposure>& exposure() const noexcept { return exposure_; }
  std::uint64_t local_key() const noexcept { return exposure_ ? exposure_->key() : 0; }

  // Lets peers name GPU memory that no rail reaches; null if one does.
  void set_staged(std::shared_ptr<const StagedMemories::Right> right) {
    covered_ = right->extent();
    staged_ = std::move(right);
  }
  const std::shared_ptr<const StagedMemories::Right>& staged_right() const noexcept {
    return staged_;
  }
  std::uint64_t staged_key() const noexcept { return staged_ ? staged_->key() : 0; }

  bool empty() const noexcept { return empty_; }  // no registrations
  // Rights of peers. Not when empty().
  bool writable() const noexcept { return (access_ & IBV_ACCESS_REMOTE_WRITE) != 0; }
  // Whether they include atomics, which use the first rail (PeerRails::atomics_rail()).
  bool atomics() const noexcept { return (access_ & IBV_ACCESS_REMOTE_ATOMIC) != 0; }
  // The range that every registration covers. Not when empty() and not staged.
  const Extent& covered() const noexcept { return covered_; }

  std::uint32_t lkey(RailIndex rail) const noexcept { return lkeys_[rail]; }
  const RailKeys& lkeys() const noexcept { return lkeys_; }
  RailKeys rkeys() const noexcept {
    const std::lock_guard lock(mutex_);
    RailKeys keys{};
    for (RailIndex rail = 0; rail < kMaxRails; ++rail) {
      if (by_rail_[rail]) keys[rail] = by_rail_[rail]->rkey();
    }
    return keys;
  }

  // Deregisters, even if others still hold this object: the devices are released. No transfer may
  // use it any more.
  void end() const noexcept {
    decltype(by_rail_) last;  // deregisters, which may block, outside the lock
    const std::lock_guard lock(mutex_);
    last.swap(by_rail_);
  }

 private:
  // Set before other threads know the object.
  bool empty_ = true;
  int access_ = 0;  // of the first rail that has one
  RailKeys lkeys_{};
  Extent covered_{0, UINT64_MAX};
  std::shared_ptr<shm::Exposure> exposure_;
  std::shared_ptr<const StagedMemories::Right> staged_;

  mutable Mutex<Rank::regions> mutex_;  // guards the next
  mutable std::array<std::shared_ptr<rdma::MemoryRegion>, kMaxRails> by_rail_;
};

// All that an Endpoint has registered and that is still held.
class LiveRegions {
 public:
  void add(const std::shared_ptr<const Regions>& regions) {
    const std::lock_guard lock(mutex_);
    if (regions_.size() >= next_sweep_) {
      std::erase_if(regions_, [](const auto& one) { return one.expired(); });
      next_sweep_ = std::max(kFirstSweep, 2 * regions_.size());
    }
    regions_.push_back(regions);
  }

  // Deregisters everything.
  void end() noexcept {
    decltype(regions_) all;
    {
      const std::lock_guard lock(mutex_);
      all.swap(regions_);
    }
    for (const auto& one : all) {
      if (const auto regions = one.lock()) regions->end();
    }
  }

 private:
  static constexpr std::size_t kFirstSweep = 64;  // entries

  Mutex<Rank::live_regions> mutex_;  // guards the next two
  std::vector<std::weak_ptr<const Regions>> regions_;
  std::size_t next_sweep_ = kFirstSweep;
};

}  // namespace zerohop::engine
