#include "engine/path/gpu/gpu_mappings.hpp"

#include <fcntl.h>

#include <algorithm>
#include <climits>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/scarcity.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/chunk_handle.hpp"

namespace zerohop::engine {
namespace {

constexpr Deadline::Seconds kMappingPatience{10};  // waiting for a thread that maps the same chunk

UniqueFd duplicate(const UniqueFd& descriptor) {
  if (!descriptor) return {};
  UniqueFd copy = UniqueFd::open([&] { return ::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0); });
  if (copy) return copy;
  throw_scarce("a descriptor of GPU memory cannot be kept", errno);
}

// The GPU at the other end of `link`.
std::shared_ptr<const gpu::Device> owner_of(const std::shared_ptr<const gpu::Device>& device,
                                            const gpu::PeerLink& link) {
  if (link.kind == gpu::PeerLink::Kind::same) return device;
  if (link.kind == gpu::PeerLink::Kind::seen) {
    return gpu::Device::open(device->table(), link.ordinal);
  }
  throw RouteUnavailable(gpu::why_out_of_reach(*device, link));
}

}  // namespace

GpuMappings::Place GpuMappings::find(int ordinal, std::uint64_t key, std::uint64_t address) const {
  auto after = places_.upper_bound({key, ordinal, address});
  if (after == places_.begin()) return nullptr;
  const auto& [where, place] = *std::prev(after);
  const bool covers = std::get<0>(where) == key && std::get<1>(where) == ordinal &&
                      place->mapping->covers(address, address + 1);
  return covers ? place : nullptr;
}

GpuMappings::Places GpuMappings::known(std::uint64_t key, const Extent& extent, int ordinal) const {
  Places places;
  const std::lock_guard lock(mutex_);
  for (std::uint64_t at = extent.begin; at < extent.end; at = places.back()->mapping->end) {
    Place place = find(ordinal, key, at);
    if (!place) return {};
    places.push_back(std::move(place));
  }
  return places;
}

GpuMappings::Places GpuMappings::reach(shm::LocalSession& session, std::uint64_t key,
                                       const Extent& extent,
                                       const std::shared_ptr<const gpu::Device>& device,
                                       const Deadline& deadline) {
  Places places;
  for (std::uint64_t at = extent.begin; at < extent.end; at = places.back()->mapping->end) {
    Place place;
    {
      const std::lock_guard lock(mutex_);
      place = find(device->ordinal(), key, at);
    }
    if (!place) place = open(session, key, at, device, deadline);
    places.push_back(std::move(place));
  }
  return places;
}

shm::LocalSession::Opened GpuMappings::ask(shm::LocalSession& session, std::uint64_t key,
                                           std::uint64_t address, const Deadline& deadline) {
  auto opened = session.open(key, address, deadline);
  if (!opened.mapping) {
    throw RouteUnavailable("its owner closed that memory, or never shared it");
  }
  if (!opened.exported || !opened.mapping->covers(address, address + 1)) {
    throw RouteUnavailable("it exceeds the range of its key");
  }
  return opened;
}

driver::CudaUuid GpuMappings::gpu_of(shm::LocalSession& session, std::uint64_t key,
                                     std::uint64_t address, const Deadline& deadline) {
  const auto exported = ask(session, key, address, deadline).exported;
  return gpu::from_handle(exported->handle, duplicate(exported->descriptor)).gpu;
}

GpuMappings::Place GpuMappings::open(shm::LocalSession& session, std::uint64_t key,
                                     std::uint64_t address,
                                     const std::shared_ptr<const gpu::Device>& device,
                                     const Deadline& deadline) {
  sweep(session);
  const auto [mapping, exported] = ask(session, key, address, deadline);
  const auto spot = std::make_shared<Spot>(Spot{.mapping = mapping, .memory = nullptr, .link = {}});
  map(*spot, session, *exported, device);
  const std::lock_guard lock(mutex_);
  if (session.stands(*mapping)) places_[{key, device->ordinal(), mapping->begin}] = spot;
  return spot;
}

void GpuMappings::map(Spot& spot, const shm::LocalSession& session,
                      const shm::ExportedChunk& exported,
                      const std::shared_ptr<const gpu::Device>& device) {
  const gpu::ChunkExport chunk = gpu::from_handle(exported.handle, duplicate(exported.descriptor));
  if (chunk.extent.begin != exported.begin || chunk.extent.end != exported.end) {
    throw ProtocolError("a process of this host sent a malformed description of GPU memory");
  }
  const auto& [bytes] = chunk.gpu;
  Chunk name{device->ordinal(), {}, chunk.buffer_id};
  std::ranges::copy(bytes, std::get<1>(name).begin());
  const decltype(mapping_)::Claim claim(mapping_, {.chunk = name},
                                        Deadline::after(kMappingPatience));
  spot.link = gpu::find_peer(*device, chunk.gpu);
  {
    const std::lock_guard lock(mutex_);
    spot.memory = mapped_[name].lock();
    if (spot.memory && spot.memory->extent().begin == chunk.extent.begin) return;
  }
  try {
    const bool own = !chunk.descriptor && session.to_own_process();
    spot.memory = own ? gpu::PeerMemory::own(device, owner_of(device, spot.link), chunk.extent)
                      : gpu::PeerMemory::map(device, {&chunk, 1});
  } catch (const CudaError& error) {
    std::string reason = gpu::why_out_of_reach(*device, spot.link);
    if (!reason.empty()) reason = " (" + reason + ")";
    throw RouteUnavailable(
        device->facts().device_name() + " cannot map it: " + error.what() + reason, error.code());
  }
  const std::lock_guard lock(mutex_);
  forget_unmapped();
  mapped_[name] = spot.memory;
}

std::size_t GpuMappings::sweep(const shm::LocalSession& session) {
  std::vector<All::node_type> ended;  // unmapped outside the lock
  const std::lock_guard lock(mutex_);
  return take_ended(session, ended);
}

// With mutex_ held.
std::size_t GpuMappings::take_ended(const shm::LocalSession& session,
                                    std::vector<All::node_type>& ended) {
  const auto take_if = [&](All::iterator first, auto goes_on, auto ends) {
    while (first != places_.end() && goes_on(first->first)) {
      const auto at = first++;
      if (ends(*at->second)) ended.push_back(places_.extract(at));
    }
  };
  if (const auto struck = session.struck_since(struck_seen_)) {
    for (const std::uint64_t key : *struck) {
      take_if(
          places_.lower_bound({key, INT_MIN, 0}),
          [key](const Where& where) { return std::get<0>(where) == key; },
          [](const Spot&) { return true; });
    }
    return struck->size();
  }
  const std::size_t looked_at = places_.size();
  take_if(
      places_.begin(), [](const Where&) { return true; },
      [&](const Spot& spot) { return !session.stands(*spot.mapping); });
  return looked_at;
}

// With mutex_ held.
void GpuMappings::forget_unmapped() {
  if (mapped_.size() < next_sweep_) return;
  std::erase_if(mapped_, [](const auto& entry) { return entry.second.expired(); });
  next_sweep_ = std::max<std::size_t>(64, 2 * mapped_.size());
}

std::map<int, GpuMappings::Mapped> GpuMappings::mapped() const {
  std::map<int, Mapped> all;
  std::set<const gpu::PeerMemory*> seen;  // exposures share chunks
  const std::lock_guard lock(mutex_);
  for (const auto& [where, place] : places_) {
    if (!seen.insert(place->memory.get()).second) continue;
    Mapped& here = all[std::get<1>(where)];
    const Extent& extent = place->memory->extent();
    here.chunks += 1;
    here.nbytes += extent.end - extent.begin;
  }
  return all;
}

void GpuMappings::clear() {
  decltype(places_) last;  // unmapped outside the lock
  {
    const std::lock_guard lock(mutex_);
    last.swap(places_);
  }
}

}  // namespace zerohop::engine
