#include "gpu/buffer.hpp"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/handles.hpp"
#include "gpu/stream_wait.hpp"
#include "gpu/vmm.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

// Buffers of this process whose memory is still being freed.
std::atomic<int> buffers_going{0};

std::string bytes_on(std::uint64_t nbytes, const Device& device) {
  return std::to_string(nbytes) + " bytes on " + device.facts().device_name();
}

driver::CudaMemoryLocation location_of(int ordinal) {
  return {.type = driver::kCudaLocationDevice, .ordinal = ordinal};
}

driver::CudaMemoryProperties properties_on(const Device& device) {
  const DeviceFacts& facts = device.facts();
  if (!facts.vmm) {
    throw CudaError(facts.device_name() +
                        " cannot map memory for other processes (cuMemCreate), as in "
                        "some virtual machines: register memory of a framework instead",
                    driver::kCudaErrorNotSupported);
  }
  return {.type = driver::kCudaMemoryPinned,
          .handle_types = facts.fd_export ? driver::kCudaHandleFd : driver::kCudaHandleNone,
          .location = location_of(facts.ordinal),
          .win32_metadata = nullptr,
          .compression = 0,
          .gpudirect_capable = facts.gpudirect_vmm,
          .usage = 0,
          .reserved = {}};
}

std::uint64_t round_up(const Device& device, std::uint64_t nbytes,
                       const driver::CudaMemoryProperties& properties) {
  std::size_t page = 0;
  check_cuda(
      device.cuda(),
      device.cuda().memory_get_granularity(&page, &properties, driver::kCudaGranularityMinimum),
      "cuMemGetAllocationGranularity of " + device.facts().device_name());
  return (nbytes + page - 1) / page * page;
}

[[noreturn]] void throw_out_of_memory(const Device& device, std::uint64_t nbytes) {
  std::size_t free = 0;
  std::size_t total = 0;
  check_cuda(device.cuda(), device.cuda().memory_get_info(&free, &total), "cuMemGetInfo");
  throw CudaError("there is no room for " + bytes_on(nbytes, device) + ": " + std::to_string(free) +
                      " of " + std::to_string(total) +
                      " are free; ask for less, or free some (torch.cuda.empty_cache() gives back "
                      "what PyTorch keeps)",
                  driver::kCudaErrorOutOfMemory);
}

// Waits, until `deadline`, for memory that is still being freed.
PhysicalMemory create_physical(const Device& device, std::uint64_t nbytes,
                               const driver::CudaMemoryProperties& properties,
                               const Deadline& deadline) {
  constexpr std::chrono::milliseconds kNap{1};
  const driver::Cuda& cuda = device.cuda();
  for (;;) {
    const bool more_comes = buffers_going.load() > 0;  // read before asking the driver
    driver::CudaAllocation handle = 0;
    const driver::CudaResult result = cuda.memory_create(&handle, nbytes, &properties, 0);
    if (result == driver::kCudaSuccess) return {cuda, handle};
    if (result != driver::kCudaErrorOutOfMemory) {
      check_cuda(cuda, result, "cuMemCreate of " + bytes_on(nbytes, device));
    }
    if (!more_comes || deadline.passed()) throw_out_of_memory(device, nbytes);
    std::this_thread::sleep_for(kNap);
  }
}

// The device itself, and the other GPUs of this process that can access its memory.
std::vector<driver::CudaMemoryAccess> accesses_to(const Device& device) {
  const driver::Cuda& cuda = device.cuda();
  std::vector<driver::CudaMemoryAccess> accesses{
      {location_of(device.ordinal()), driver::kCudaAccessReadWrite}};
  int count = 0;
  check_cuda(cuda, cuda.device_get_count(&count), "cuDeviceGetCount");
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    if (ordinal == device.ordinal()) continue;
    driver::CudaDevice other = 0;
    int reaches = 0;
    const std::string name = "cuda:" + std::to_string(ordinal);
    check_cuda(cuda, cuda.device_get(&other, ordinal), "cuDeviceGet of " + name);
    check_cuda(cuda, cuda.device_can_access_peer(&reaches, other, device.handle()),
               "cuDeviceCanAccessPeer of " + name);
    if (reaches != 0) accesses.push_back({location_of(ordinal), driver::kCudaAccessReadWrite});
  }
  return accesses;
}

}  // namespace

struct Buffer::Mapping {
  // The caller has made the device current.
  Mapping(std::shared_ptr<const Device> d, std::uint64_t wanted, const Deadline& deadline)
      : device(std::move(d)),
        properties(properties_on(*device)),
        nbytes(round_up(*device, wanted, properties)),
        physical(create_physical(*device, nbytes, properties, deadline)),
        addresses(device->cuda(), nbytes, bytes_on(nbytes, *device)),
        mapped(device->cuda(), addresses.begin(), nbytes, physical, bytes_on(nbytes, *device)) {
    const auto accesses = accesses_to(*device);
    check_cuda(device->cuda(),
               device->cuda().memory_set_access(addresses.begin(), nbytes, accesses.data(),
                                                accesses.size()),
               "cuMemSetAccess of " + bytes_on(nbytes, *device));
  }

  void zero(const Deadline& deadline) const {
    const Extent extent{addresses.begin(), addresses.begin() + nbytes};
    zero_memory(*device, extent, std::to_string(nbytes) + " bytes", deadline);
  }

  const std::shared_ptr<const Device> device;
  const driver::CudaMemoryProperties properties;
  const std::uint64_t nbytes;  // rounded up to whole pages
  const PhysicalMemory physical;
  const AddressRange addresses;
  const MappedMemory mapped;
};

std::shared_ptr<Buffer> Buffer::create(std::shared_ptr<const Device> device, std::uint64_t nbytes,
                                       const Deadline& deadline) {
  if (nbytes == 0) return std::shared_ptr<Buffer>(new Buffer(0, nullptr));
  const DeviceGuard guard(*device);
  auto mapping = std::make_unique<Mapping>(device, nbytes, deadline);
  // From here on the GPU may access the memory, so it must be freed as a Buffer is.
  std::shared_ptr<Buffer> buffer(new Buffer(nbytes, std::move(mapping)));
  buffer->mapping_->zero(deadline);
  return buffer;
}

Buffer::Buffer(std::uint64_t nbytes, std::unique_ptr<Mapping> mapping)
    : nbytes_(nbytes), generation_(fork_generation()), mapping_(std::move(mapping)) {}

std::uint64_t Buffer::address() const noexcept {
  return mapping_ ? mapping_->addresses.begin() : 0;
}

Buffer::~Buffer() {
  Mapping* mapping = mapping_.release();
  // CUDA does not survive fork(): in a child there is nothing to free.
  if (mapping == nullptr || generation_ != fork_generation()) return;
  ++buffers_going;
  // The caller must not wait for the GPU: it may be the thread that answers peers, and a kernel may
  // be waiting for what that thread delivers.
  run_when_idle(mapping->device, [mapping]() noexcept {
    const std::shared_ptr<const Device> device = mapping->device;
    delete mapping;
    --buffers_going;
  });
}

}  // namespace zerohop::gpu
