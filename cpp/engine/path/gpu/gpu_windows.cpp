#include "engine/path/gpu/gpu_windows.hpp"

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
#include "gpu/chunk_card.hpp"

namespace zerohop::engine {
namespace {

constexpr Deadline::Seconds kMappingPatience{10};  // with a thread that maps the same chunk

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

GpuWindows::Place GpuWindows::find(int ordinal, std::uint64_t key, std::uint64_t address) const {
  auto after = places_.upper_bound({key, ordinal, address});
  if (after == places_.begin()) return nullptr;
  const auto& [where, place] = *std::prev(after);
  const bool covers = std::get<0>(where) == key && std::get<1>(where) == ordinal &&
                      place->window->covers(address, address + 1);
  return covers ? place : nullptr;
}

GpuWindows::Places GpuWindows::known(std::uint64_t key, const Extent& extent, int ordinal) const {
  Places places;
  const std::lock_guard lock(mutex_);
  for (std::uint64_t at = extent.begin; at < extent.end; at = places.back()->window->end) {
    Place place = find(ordinal, key, at);
    if (!place) return {};
    places.push_back(std::move(place));
  }
  return places;
}

GpuWindows::Places GpuWindows::reach(ipc::Visit& visit, std::uint64_t key, const Extent& extent,
                                     const std::shared_ptr<const gpu::Device>& device,
                                     const Deadline& deadline) {
  Places places;
  for (std::uint64_t at = extent.begin; at < extent.end; at = places.back()->window->end) {
    Place place;
    {
      const std::lock_guard lock(mutex_);
      place = find(device->ordinal(), key, at);
    }
    if (!place) place = open(visit, key, at, device, deadline);
    places.push_back(std::move(place));
  }
  return places;
}

ipc::Visit::Opened GpuWindows::ask(ipc::Visit& visit, std::uint64_t key, std::uint64_t address,
                                   const Deadline& deadline) {
  auto opened = visit.open(key, address, deadline);
  if (!opened.window) {
    throw RouteUnavailable("its owner has closed that memory, or never gave it");
  }
  if (!opened.parcel || !opened.window->covers(address, address + 1)) {
    throw RouteUnavailable("it leaves the range that its key opens");
  }
  return opened;
}

driver::CudaUuid GpuWindows::gpu_of(ipc::Visit& visit, std::uint64_t key, std::uint64_t address,
                                    const Deadline& deadline) {
  const auto parcel = ask(visit, key, address, deadline).parcel;
  return gpu::from_card(parcel->card, duplicate(parcel->descriptor)).gpu;
}

GpuWindows::Place GpuWindows::open(ipc::Visit& visit, std::uint64_t key, std::uint64_t address,
                                   const std::shared_ptr<const gpu::Device>& device,
                                   const Deadline& deadline) {
  sweep(visit);
  const auto [window, parcel] = ask(visit, key, address, deadline);
  const auto spot = std::make_shared<Spot>(Spot{.window = window, .memory = nullptr, .link = {}});
  map(*spot, visit, *parcel, device);
  const std::lock_guard lock(mutex_);
  if (visit.stands(*window)) places_[{key, device->ordinal(), window->begin}] = spot;
  return spot;
}

void GpuWindows::map(Spot& spot, const ipc::Visit& visit, const ipc::Parcel& parcel,
                     const std::shared_ptr<const gpu::Device>& device) {
  const gpu::ChunkExport chunk = gpu::from_card(parcel.card, duplicate(parcel.descriptor));
  if (chunk.extent.begin != parcel.begin || chunk.extent.end != parcel.end) {
    throw ProtocolError("a process of this host describes GPU memory as no correct one does");
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
    const bool own = !chunk.descriptor && visit.to_own_process();
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

std::size_t GpuWindows::sweep(const ipc::Visit& visit) {
  std::vector<All::node_type> ended;  // unmapped outside the lock
  const std::lock_guard lock(mutex_);
  return take_ended(visit, ended);
}

// With mutex_ held.
std::size_t GpuWindows::take_ended(const ipc::Visit& visit, std::vector<All::node_type>& ended) {
  const auto take_if = [&](All::iterator first, auto goes_on, auto ends) {
    while (first != places_.end() && goes_on(first->first)) {
      const auto at = first++;
      if (ends(*at->second)) ended.push_back(places_.extract(at));
    }
  };
  if (const auto struck = visit.struck_since(struck_seen_)) {
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
      [&](const Spot& spot) { return !visit.stands(*spot.window); });
  return looked_at;
}

// With mutex_ held.
void GpuWindows::forget_unmapped() {
  if (mapped_.size() < next_sweep_) return;
  std::erase_if(mapped_, [](const auto& entry) { return entry.second.expired(); });
  next_sweep_ = std::max<std::size_t>(64, 2 * mapped_.size());
}

std::map<int, GpuWindows::Mapped> GpuWindows::mapped() const {
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

void GpuWindows::clear() {
  decltype(places_) last;  // unmapped outside the lock
  {
    const std::lock_guard lock(mutex_);
    last.swap(places_);
  }
}

}  // namespace zerohop::engine
