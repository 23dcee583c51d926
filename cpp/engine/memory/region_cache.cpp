#include "engine/memory/region_cache.hpp"

#include <bit>
#include <mutex>
#include <utility>

namespace zerohop::engine {
namespace {

std::uint64_t nbytes_of(const RegionCache::Key& key) noexcept {
  return key.extent.end - key.extent.begin;
}

std::size_t log2_of(const RegionCache::Key& key) noexcept {
  return static_cast<std::size_t>(std::bit_width(nbytes_of(key) | 1)) - 1;
}

bool covers(const Extent& outer, const Extent& inner) noexcept {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

// Whether the wanted chunks occur consecutively among the known ones.
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

GpuRegion RegionCache::find(const Key& key, std::optional<RegistrationWay> way) {
  const auto known = find_entry(key, way);
  return known ? hand_out(*known) : GpuRegion{};
}

std::optional<RegionCache::Entries::iterator> RegionCache::find_entry(
    const Key& key, std::optional<RegistrationWay> way) {
  const std::lock_guard lock(mutex_);
  for (std::size_t log = log2_of(key); log < indices_.size(); ++log) {
    // Backwards from the nearest entry that begins at or below, as far as this length class
    // reaches.
    const Index& index = indices_[log];
    for (auto at = index.upper_bound(key.extent.begin); at != index.begin();) {
      --at;
      if (log < 63 && key.extent.begin - at->first >= std::uint64_t{2} << log) break;
      ++stats_.looks;
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
  }
  ++stats_.misses;
  return std::nullopt;
}

RegionCache::Index& RegionCache::index_of(const Key& key) noexcept {
  return indices_[log2_of(key)];
}

GpuRegion RegionCache::insert(Key key, GpuRegion registered) {
  Entries fresh;
  fresh.push_back({.key = std::move(key), .registered = std::move(registered), .users = 1});
  const auto entry = fresh.begin();
  {
    const std::lock_guard lock(mutex_);
    entry->serial = ++last_serial_;
    entry->index = index_of(entry->key).emplace(entry->key.extent.begin, entry);
    used_.splice(used_.end(), fresh);
    ++stats_.entries;
    stats_.nbytes += nbytes_of(entry->key);
  }
  return hand_out(entry);
}

// Without the mutex: if creating the pointer fails, release() is called right here.
GpuRegion RegionCache::hand_out(Entries::iterator entry) {
  // The cache lives until the last of its registrations is returned.
  const auto give_back = [cache = shared_from_this(), entry](rdma::MemoryRegion*) {
    cache->release(entry);
  };
  return {std::shared_ptr<rdma::MemoryRegion>(entry->registered.region.get(), give_back),
          entry->registered.choice};
}

void RegionCache::release(Entries::iterator entry) noexcept {
  Entries doomed;  // deregistered, which may block, after the lock is released
  const std::lock_guard lock(mutex_);
  if (--entry->users > 0) return;
  unused_.splice(unused_.end(), used_, entry);
  ++stats_.unused;
  stats_.unused_nbytes += nbytes_of(entry->key);
  if (entry->registered.region->exposed()) drop_unused(entry, doomed);
  enforce_limits(doomed);
}

// This and the next: with the mutex held.
void RegionCache::drop_unused(Entries::iterator entry, Entries& doomed) noexcept {
  index_of(entry->key).erase(entry->index);
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

std::vector<std::pair<std::uint64_t, RegionCache::Key>> RegionCache::unused() const {
  std::vector<std::pair<std::uint64_t, Key>> all;
  const std::lock_guard lock(mutex_);
  all.reserve(unused_.size());
  for (const Entry& entry : unused_) all.emplace_back(entry.serial, entry.key);
  return all;
}

void RegionCache::drop_stale(const std::set<std::uint64_t>& stale) noexcept {
  Entries doomed;  // deregistered, which may block, after the lock is released
  const std::lock_guard lock(mutex_);
  for (auto next = unused_.begin(); next != unused_.end();) {
    const auto entry = next++;
    if (!stale.contains(entry->serial)) continue;
    ++stats_.stale;
    drop_unused(entry, doomed);
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
