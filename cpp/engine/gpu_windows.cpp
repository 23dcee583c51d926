#include "engine/gpu_windows.hpp"

#include <fcntl.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/chunk_card.hpp"

namespace zerohop::engine {
namespace {

UniqueFd duplicate(const UniqueFd& descriptor) {
  if (!descriptor) return {};
  UniqueFd copy = UniqueFd::open([&] { return ::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0); });
  if (copy) return copy;
  throw Error(errno_message("a descriptor of GPU memory cannot be kept (ulimit -n)", errno), errno);
}

// The GPU of this process that has that identity.
std::shared_ptr<const gpu::Device> device_of(const gpu::Device& any, const driver::CudaUuid& uuid,
                                             const std::shared_ptr<const gpu::Device>& first) {
  const driver::Cuda& cuda = any.cuda();
  int count = 0;
  driver::check_cuda(cuda, cuda.device_get_count(&count), "cuDeviceGetCount");
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    driver::CudaDevice handle = 0;
    driver::CudaUuid found{};
    driver::check_cuda(cuda, cuda.device_get(&handle, ordinal), "cuDeviceGet");
    driver::check_cuda(cuda, cuda.device_get_uuid(&found, handle), "cuDeviceGetUuid");
    if (!std::ranges::equal(found.bytes, uuid.bytes)) continue;
    return ordinal == first->ordinal() ? first : gpu::Device::open(any.table(), ordinal);
  }
  throw RouteUnavailable("its GPU is not among those that this process sees");
}

}  // namespace

const GpuWindows::Place* GpuWindows::find(int ordinal, std::uint64_t key,
                                          std::uint64_t address) const {
  auto after = places_.upper_bound({ordinal, key, address});
  if (after == places_.begin()) return nullptr;
  const auto& [spot, place] = *std::prev(after);
  const bool covers = std::get<0>(spot) == ordinal && std::get<1>(spot) == key &&
                      place.window->covers(address, address + 1);
  return covers ? &place : nullptr;
}

std::vector<GpuWindows::Place> GpuWindows::reach(ipc::Visit& visit, std::uint64_t key,
                                                 const Extent& extent,
                                                 const std::shared_ptr<const gpu::Device>& device,
                                                 const Deadline& deadline) {
  std::vector<Place> places;
  for (std::uint64_t at = extent.begin; at < extent.end; at = places.back().window->end) {
    {
      const std::lock_guard lock(mutex_);
      if (const Place* known = find(device->ordinal(), key, at)) places.push_back(*known);
    }
    if (places.empty() || places.back().window->end <= at) {
      places.push_back(open(visit, key, at, device, deadline));
    }
  }
  return places;
}

GpuWindows::Place GpuWindows::open(ipc::Visit& visit, std::uint64_t key, std::uint64_t address,
                                   const std::shared_ptr<const gpu::Device>& device,
                                   const Deadline& deadline) {
  sweep(visit);
  const auto [window, parcel] = visit.open(key, address, deadline);
  if (!window) {
    throw RouteUnavailable("its owner has closed that memory, or never gave it");
  }
  if (!parcel || !window->covers(address, address + 1)) {
    throw RouteUnavailable("it leaves the range that its key opens");
  }
  const Place place{.window = window, .memory = map(visit, *parcel, device)};
  const std::lock_guard lock(mutex_);
  places_[{device->ordinal(), key, window->begin}] = place;
  return place;
}

std::shared_ptr<const gpu::PeerMemory> GpuWindows::map(
    const ipc::Visit& visit, const ipc::Parcel& parcel,
    const std::shared_ptr<const gpu::Device>& device) {
  const gpu::ChunkExport chunk = gpu::from_card(parcel.card, duplicate(parcel.descriptor));
  if (chunk.extent.begin != parcel.begin || chunk.extent.end != parcel.end) {
    throw ProtocolError("a process of this host describes GPU memory as no correct one does");
  }
  const auto& [bytes] = chunk.gpu;
  Chunk name{device->ordinal(), {}, chunk.buffer_id};
  std::ranges::copy(bytes, std::get<1>(name).begin());
  const std::lock_guard mapping(mapping_);
  {
    const std::lock_guard lock(mutex_);
    const auto known = mapped_[name].lock();
    if (known && known->extent().begin == chunk.extent.begin) return known;
  }
  try {
    auto memory =
        !chunk.descriptor && visit.to_own_process()
            ? gpu::PeerMemory::own(device, device_of(*device, chunk.gpu, device), chunk.extent)
            : gpu::PeerMemory::map(device, {&chunk, 1});
    const std::lock_guard lock(mutex_);
    mapped_[name] = memory;
    return memory;
  } catch (const CudaError& error) {
    throw RouteUnavailable(device->facts().device_name() + " cannot map it: " + error.what(),
                           error.code());
  }
}

void GpuWindows::sweep(const ipc::Visit& visit) {
  std::vector<Place> last;  // unmapped outside the lock
  const std::lock_guard lock(mutex_);
  std::erase_if(places_, [&](const auto& entry) {
    if (visit.stands(*entry.second.window)) return false;
    last.push_back(entry.second);
    return true;
  });
  std::erase_if(mapped_, [](const auto& entry) { return entry.second.expired(); });
}

void GpuWindows::clear() {
  decltype(places_) last;  // unmapped outside the lock
  {
    const std::lock_guard lock(mutex_);
    last.swap(places_);
  }
}

}  // namespace zerohop::engine
