// Registers memory, and finds the registration that already covers it.
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

// The IBV_ACCESS_* bits of memory that peers may read, and write if `writable`, by atomics too
// where the device has them.
int access_bits(const rdma::Device& device, bool writable) noexcept;

// A range that is being registered, with rights as the caller tells them apart.
struct WantedRegistration {
  Extent extent;
  int rights = 0;

  bool covers(const WantedRegistration& other) const noexcept {
    return rights == other.rights && extent.begin <= other.extent.begin &&
           other.extent.end <= extent.end;
  }
};
using PendingRegistrations = Pending<Rank::registrations, WantedRegistration>;

// How long a thread waits for another's registration of the same memory.
inline constexpr Deadline::Seconds kRegistrationPatience{10};

// What is behind the memory, as shm::Exposures::expose() takes it. Without an owner processes of
// this host reach it by a device only.
struct Backing {
  std::shared_ptr<const void> owner;
  int memfd = -1;
};

// A region is known here only while some Memory or Transfer holds it, and each of those holds the
// array too: an address that was freed and used again can never meet a stale registration.
class Registrations {
 public:
  // exposures: of the memory registered here; null: processes of this host reach it by a device
  // only. live: is told of every new registration.
  Registrations(Rails rails, std::shared_ptr<shm::Exposures> exposures,
                std::shared_ptr<LiveRegions> live)
      : rails_(std::move(rails)), exposures_(std::move(exposures)), live_(std::move(live)) {}

  // The regions, one with each rail whose device is still there, over `extent` with the right to be
  // read, and written if `writable`. With `shared` those that cover the extent with the same rights
  // is used again; its keys then reach all of it. Without, the keys reach the extent and nothing
  // more. Null for an empty extent. No lock is held while a device registers: who asks for memory
  // that another thread registers waits for that, and nobody else. Throws RegistrationError.
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
  PendingRegistrations pending_;              // that are shared
  mutable Mutex<Rank::registrations> mutex_;  // guards all below
  std::map<std::uint64_t, std::weak_ptr<const Regions>> by_address_;
  std::size_t next_sweep_ = 64;  // entries at which expired ones are swept out
};

}  // namespace zerohop::engine
