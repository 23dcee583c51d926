// Registers memory, and finds registrations that already cover it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/layout.hpp"
#include "base/locks.hpp"
#include "engine/memory/pending.hpp"
#include "engine/memory/regions.hpp"
#include "engine/rail.hpp"

namespace zerohop::engine {

// The IBV_ACCESS_* bits of memory that peers may read, and write if `writable`, including atomics
// where the device has them.
int access_bits(const rdma::Device& device, bool writable) noexcept;

// A range being registered, with the caller's rights.
struct WantedRegistration {
  Extent extent;
  int rights = 0;

  bool covers(const WantedRegistration& other) const noexcept {
    return rights == other.rights && extent.begin <= other.extent.begin &&
           other.extent.end <= extent.end;
  }
};
using PendingRegistrations = Pending<Rank::registrations, WantedRegistration>;

// How long a thread waits for another thread's registration of the same memory.
inline constexpr Deadline::Seconds kRegistrationPatience{10};

// The backing of the memory, as for shm::Exposures::expose(). Without an owner, processes of this
// host reach it only through a device.
struct Backing {
  std::shared_ptr<const void> owner;
  int memfd = -1;
};

// Knows a region only while some Memory or Transfer holds it, and each of those also holds the
// array: an address that was freed and reused never finds a stale registration.
class HostRegistrations {
 public:
  // exposures: of memory registered here; null: processes of this host reach it only through a
  // device. live: receives every new registration.
  HostRegistrations(Rails rails, std::shared_ptr<shm::Exposures> exposures,
                    std::shared_ptr<LiveRegions> live)
      : rails_(std::move(rails)), exposures_(std::move(exposures)), live_(std::move(live)) {}

  // The regions over `extent`, one per rail whose device still exists, readable, and writable if
  // `writable`. With `shared`, regions that cover the extent with the same rights are reused; their
  // keys then reach all of the region. Otherwise the keys reach the extent and nothing more. Null
  // for an empty extent. No lock is held while a device registers: a thread waits only if another
  // one is registering the same memory. Throws RegistrationError.
  std::shared_ptr<const Regions> find_or_create(const Extent& extent, bool writable, bool shared,
                                                const Backing& backing = {});

 private:
  std::shared_ptr<const Regions> find(const Extent& extent, bool writable) const;
  std::shared_ptr<const Regions> create(const Extent& extent, bool writable,
                                        const Backing& backing) const;
  void publish(const Extent& extent, const std::shared_ptr<const Regions>& regions);
  void forget_expired();  // with mutex_ held

  const Rails rails_;
  const std::shared_ptr<shm::Exposures> exposures_;
  const std::shared_ptr<LiveRegions> live_;
  PendingRegistrations pending_;              // the shared ones
  mutable Mutex<Rank::registrations> mutex_;  // guards all members below
  std::map<std::uint64_t, std::weak_ptr<const Regions>> by_address_;
  std::size_t next_sweep_ = 64;  // entry count at which expired ones are removed
};

}  // namespace zerohop::engine
