// The registrations of one range of memory, one with each rail that could have one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/layout.hpp"
#include "engine/rail.hpp"
#include "ipc/exposures.hpp"
#include "rdma/memory_region.hpp"

namespace zerohop::engine {

class Regions {
 public:
  void set(RailIndex rail, std::shared_ptr<rdma::MemoryRegion> region) {
    if (!region) return;
    covered_.begin = std::max(covered_.begin, region->address());
    covered_.end = std::min(covered_.end, region->address() + region->nbytes());
    if (!any_) any_ = region.get();
    by_rail_[rail] = std::move(region);
  }

  // What lets processes of this host reach the range without a device; may be null.
  void set_exposure(std::shared_ptr<ipc::Exposure> exposure) { exposure_ = std::move(exposure); }
  std::uint64_t local_key() const noexcept { return exposure_ ? exposure_->key() : 0; }

  bool empty() const noexcept { return any_ == nullptr; }
  // What peers may do. Not when empty().
  bool writable() const noexcept { return (any_->access() & IBV_ACCESS_REMOTE_WRITE) != 0; }
  // Whether they include atomics, which take the first rail (Peer::atomics_path()).
  bool atomics() const noexcept { return (any_->access() & IBV_ACCESS_REMOTE_ATOMIC) != 0; }
  // The range that every one of them covers. Not when empty().
  const Extent& covered() const noexcept { return covered_; }

  std::uint32_t lkey(RailIndex rail) const noexcept {
    return by_rail_[rail] ? by_rail_[rail]->lkey() : 0;
  }
  std::uint32_t rkey(RailIndex rail) const noexcept {
    return by_rail_[rail] ? by_rail_[rail]->rkey() : 0;
  }
  RailKeys lkeys() const noexcept {
    RailKeys keys{};
    for (RailIndex rail = 0; rail < kMaxRails; ++rail) keys[rail] = lkey(rail);
    return keys;
  }
  RailKeys rkeys() const noexcept {
    RailKeys keys{};
    for (RailIndex rail = 0; rail < kMaxRails; ++rail) keys[rail] = rkey(rail);
    return keys;
  }

 private:
  std::array<std::shared_ptr<rdma::MemoryRegion>, kMaxRails> by_rail_;
  const rdma::MemoryRegion* any_ = nullptr;  // of the first rail that has one
  Extent covered_{0, UINT64_MAX};
  std::shared_ptr<ipc::Exposure> exposure_;
};

}  // namespace zerohop::engine
