#include "engine/region_cache.hpp"

#include <utility>

namespace zerohop::engine {
namespace {

std::uint64_t nbytes_of(const RegionCache::Key& key) noexcept {
  return key.extent.end - key.extent.begin;
}

bool covers(const Extent& outer, const Extent& inner) noexcept {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

// Whether the wanted chunks are, one after the other, among the known ones.
bool is_same_memory(const std::vector<gpu::Chunk>& known, const std::vector<gpu::Chunk>& wanted) {
  std::size_t first = 0;
  while (first < known.size() && known[first].extent.begin < wanted.front().extent.begin) ++first;
  if (known.size() - first < wanted.size()) return false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (known[first + i] != wanted[i]) return false;
  }
  return true;
}

bool serves(const RegionCache::Key& known, const RegionCache::Key& wanted) {
  return known.access == wanted.access && covers(known.extent, wanted.extent) &&
         is_same_memory(known.chunks, wanted.chunks);
}

}  // namespace

Registered RegionCache::find(const Key& key, std::optional<RegistrationWay> way) {
  const auto known = find_entry(key, way);
  return known ? hand_out(*known) : Registered{};
}

std::optional<RegionCache::Entries::iterator> RegionCache::find_entry(
    const Key& key, std::optional<RegistrationWay> way) {
  const std::lock_guard lock(mutex_);
  // Backwards from the nearest that begins at or below: the likeliest to cover it comes first.
  for (auto at = index_.upper_bound(key.extent.begin); at != index_.begin();) {
    --at;
    const auto entry = at->second;
    if (way && entry->registered.choice->way != *way) continue;
    if (!serves(entry->key, key)) continue;
    ++stats_.hits;
    if (entry->users++ == 0) {
      used_.splice(used_.end(), unused_, entry);
      --stats_.unused;
      stats_.unused_nbytes -= nbytes_of(entry->key);
    }
    return entry;
  }
  ++stats_.misses;
  return std::nullopt;
}

Registered RegionCache::insert(Key key, Registered registered) {
  Entries fresh;
  fresh.push_back({.key = std::move(key), .registered = std::move(registered), .users = 1});
  const auto entry = fresh.begin();
  {
    const std::lock_guard lock(mutex_);
    entry->index = index_.emplace(entry->key.extent.begin, entry);
    used_.splice(used_.end(), fresh);
    ++stats_.entries;
    stats_.nbytes += nbytes_of(entry->key);
  }
  return hand_out(entry);
}

// Without the mutex: should the pointer fail to be made, release() is called here already.
Registered RegionCache::hand_out(Entries::iterator entry) {
  // The cache lives until the last of its registrations is given back.
  const auto give_back = [cache = shared_from_this(), entry](rdma::MemoryRegion*) {
    cache->release(entry);
  };
  return {std::shared_ptr<rdma::MemoryRegion>(entry->registered.region.get(), give_back),
          entry->registered.choice};
}

void RegionCache::release(Entries::iterator entry) noexcept {
  Entries doomed;  // deregistered, which may wait, after the lock is given up
  const std::lock_guard lock(mutex_);
  if (--entry->users > 0) return;
  unused_.splice(unused_.end(), used_, entry);
  ++stats_.unused;
  stats_.unused_nbytes += nbytes_of(entry->key);
  if (entry->registered.region->exposed()) drop_unused(entry, doomed);
  enforce_limits(doomed);
}

// With the mutex held, as the next.
void RegionCache::drop_unused(Entries::iterator entry, Entries& doomed) noexcept {
  index_.erase(entry->index);
  doomed.splice(doomed.end(), unused_, entry);
  const std::uint64_t nbytes = nbytes_of(entry->key);
  --stats_.entries;
  --stats_.unused;
  stats_.nbytes -= nbytes;
  stats_.unused_nbytes -= nbytes;
}

void RegionCache::enforce_limits(Entries& doomed) noexcept {
  while (stats_.unused > limits_.entries || stats_.unused_nbytes > limits_.nbytes) {
    ++stats_.evictions;
    drop_unused(unused_.begin(), doomed);
  }
}

void RegionCache::close() {
  Entries doomed;
  const std::lock_guard lock(mutex_);
  limits_ = {.entries = 0, .nbytes = 0};
  enforce_limits(doomed);
}

RegionCache::Stats RegionCache::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace zerohop::engine
