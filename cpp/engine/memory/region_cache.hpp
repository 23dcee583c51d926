// Caches registrations of GPU memory.
//
// A registration is identified by the memory itself, not by its address: by the chunks that it
// spans, each with its extent and its buffer id, which the driver never reuses. So memory that was
// freed and reallocated at the same address never finds a stale registration. All chunks are
// compared, not only the first and the last: in an expandable segment any one in the middle may
// have been remapped, and the adapter would keep writing to the old one. As the driver describes
// one address at a time, a look-up costs one call per chunk. An unused registration stays until
// there are too many, and until then keeps its memory from being freed (the driver holds exported
// memory). A registration whose key was sent to a peer ends with its last user: closing a Memory
// ends the peers' right to it.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/locks.hpp"
#include "engine/memory/registration_choice.hpp"
#include "gpu/allocation.hpp"
#include "gpu/device.hpp"
#include "rdma/memory_region.hpp"

namespace zerohop::engine {

// A registration and why it is of that kind.
struct GpuRegion {
  std::shared_ptr<rdma::MemoryRegion> region;  // null: none, or staged
  std::shared_ptr<const RegistrationChoice> choice;
  std::shared_ptr<const gpu::Device> device{};  // that holds the memory; not in the cache
};

class RegionCache : public std::enable_shared_from_this<RegionCache> {
 public:
  // Limits on unused registrations.
  struct Limits {
    std::size_t entries = 1024;
    std::uint64_t nbytes = std::uint64_t{1} << 30;
  };

  // What a registration covers.
  struct Key {
    Extent extent;
    std::vector<gpu::Chunk> chunks;  // that the extent spans
    int access = 0;                  // IBV_ACCESS_* bits
  };

  struct Stats {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t looks = 0;      // registrations examined
    std::uint64_t evictions = 0;  // unused registrations ended for lack of room
    std::uint64_t stale = 0;      // ... because their memory had been freed
    std::uint64_t entries = 0;    // current registrations
    std::uint64_t unused = 0;     // ... that are unused
    std::uint64_t nbytes = 0;     // registered
    std::uint64_t unused_nbytes = 0;

    Stats& operator+=(const Stats& more) noexcept {
      hits += more.hits;
      misses += more.misses;
      looks += more.looks;
      evictions += more.evictions;
      stale += more.stale;
      entries += more.entries;
      unused += more.unused;
      nbytes += more.nbytes;
      unused_nbytes += more.unused_nbytes;
      return *this;
    }
  };

  explicit RegionCache(const Limits& limits) : limits_(limits) {}

  // A registration that covers the extent with the same rights, of unchanged memory; made in the
  // given way, if any. Has no region if there is none, which counts as a miss. It is in use until
  // the pointer to the region and its copies are gone.
  GpuRegion find(const Key& key, std::optional<RegistrationWay> way = {});
  // Adds a fresh registration, in use.
  GpuRegion insert(Key key, GpuRegion fresh);

  // Ends the unused registrations whose key satisfies `is_stale`.
  template <typename IsStale>
  void sweep(IsStale is_stale);
  // From now on, keeps nothing that is unused.
  void close();

  Stats stats() const;

 private:
  struct Entry;
  using Entries = std::list<Entry>;
  // By the start of the extent, one index per size class [2^n, 2^(n+1)): finds what could cover a
  // range without visiting all entries that begin below it.
  using Index = std::multimap<std::uint64_t, Entries::iterator>;
  using Indices = std::array<Index, 64>;
  struct Entry {
    Key key;
    GpuRegion registered;
    std::size_t users = 0;
    std::uint64_t serial = 0;
    Index::iterator index{};
  };

  // By serial number. The caller examines them without the lock, as each chunk takes a driver call.
  std::vector<std::pair<std::uint64_t, Key>> unused() const;
  void drop_stale(const std::set<std::uint64_t>& stale) noexcept;
  std::optional<Entries::iterator> find_entry(const Key& key, std::optional<RegistrationWay> way);
  GpuRegion hand_out(Entries::iterator entry);
  void release(Entries::iterator entry) noexcept;
  void drop_unused(Entries::iterator entry, Entries& doomed) noexcept;
  void enforce_limits(Entries& doomed) noexcept;
  Index& index_of(const Key& key) noexcept;

  mutable Mutex<Rank::region_cache> mutex_;
  Limits limits_;
  Indices indices_;
  Entries used_;
  Entries unused_;  // least recently used first
  Stats stats_;
  std::uint64_t last_serial_ = 0;
};

template <typename IsStale>
void RegionCache::sweep(IsStale is_stale) {
  std::set<std::uint64_t> stale;
  for (const auto& [serial, key] : unused()) {
    if (is_stale(key)) stale.insert(serial);
  }
  drop_stale(stale);
}

}  // namespace zerohop::engine
