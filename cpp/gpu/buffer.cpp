#include "gpu/buffer.hpp"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/handles.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

// Buffers of this process whose memory is on its way back to the GPU.
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
                        " cannot map memory that others are to reach (cuMemCreate), as GPUs of "
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

// Each of the three below is one resource of the driver, which it names by a number. Failures to
// give it back are not reported: at process exit the driver may have shut down first.

class Physical {
 public:
  Physical(const Device& device, std::uint64_t nbytes,
           const driver::CudaMemoryProperties& properties, const Deadline& deadline)
      : cuda_(device.cuda()) {
    constexpr std::chrono::milliseconds kNap{1};
    for (;;) {
      const bool more_comes = buffers_going.load() > 0;  // before the driver is asked
      const driver::CudaResult result = cuda_.memory_create(&handle_, nbytes, &properties, 0);
      if (result == driver::kCudaSuccess) return;
      if (result != driver::kCudaErrorOutOfMemory) {
        check_cuda(cuda_, result, "cuMemCreate of " + bytes_on(nbytes, device));
      }
      if (!more_comes || deadline.passed()) throw_out_of_memory(device, nbytes);
      std::this_thread::sleep_for(kNap);
    }
  }
  ~Physical() { (void)cuda_.memory_release_allocation(handle_); }
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  driver::CudaAllocation handle() const noexcept { return handle_; }

 private:
  const driver::Cuda& cuda_;
  driver::CudaAllocation handle_ = 0;
};

class Addresses {
 public:
  Addresses(const Device& device, std::uint64_t nbytes) : cuda_(device.cuda()), nbytes_(nbytes) {
    check_cuda(cuda_, cuda_.memory_reserve(&begin_, nbytes, /*alignment=*/0, /*wish=*/0, 0),
               "cuMemAddressReserve for " + bytes_on(nbytes, device));
  }
  ~Addresses() { (void)cuda_.memory_free_addresses(begin_, nbytes_); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  driver::CudaAddress begin() const noexcept { return begin_; }

 private:
  const driver::Cuda& cuda_;
  const std::uint64_t nbytes_;
  driver::CudaAddress begin_ = 0;
};

class Mapped {
 public:
  Mapped(const Device& device, driver::CudaAddress begin, std::uint64_t nbytes,
         driver::CudaAllocation physical)
      : cuda_(device.cuda()), begin_(begin), nbytes_(nbytes) {
    check_cuda(cuda_, cuda_.memory_map(begin, nbytes, /*offset=*/0, physical, 0),
               "cuMemMap of " + bytes_on(nbytes, device));
  }
  ~Mapped() { (void)cuda_.memory_unmap(begin_, nbytes_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

 private:
  const driver::Cuda& cuda_;
  const driver::CudaAddress begin_;
  const std::uint64_t nbytes_;
};

// The device itself, and the others of this process that can reach its memory.
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

// Waits for all that the GPU was given, whichever stream it is in. Like cudaFree, this spoils a
// capture under way (CUDA Driver API, cuCtxSynchronize); the driver refuses, and is asked again
// later.
void wait_until_idle(const Device& device) {
  constexpr std::chrono::milliseconds kNap{10};
  for (;;) {
    const driver::CudaResult result = device.cuda().context_synchronize();
    if (result < driver::kCudaErrorCaptureFirst || result > driver::kCudaErrorCaptureLast) return;
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace

struct Buffer::Mapping {
  // The caller has made the device current.
  Mapping(std::shared_ptr<Device> d, std::uint64_t wanted, const Deadline& deadline)
      : device(std::move(d)),
        properties(properties_on(*device)),
        nbytes(round_up(*device, wanted, properties)),
        physical(*device, nbytes, properties, deadline),
        addresses(*device, nbytes),
        mapped(*device, addresses.begin(), nbytes, physical.handle()) {
    const auto accesses = accesses_to(*device);
    check_cuda(device->cuda(),
               device->cuda().memory_set_access(addresses.begin(), nbytes, accesses.data(),
                                                accesses.size()),
               "cuMemSetAccess of " + bytes_on(nbytes, *device));
  }

  void zero(const Deadline& deadline) const {
    const driver::Cuda& cuda = device->cuda();
    const std::string what = "zeroing " + bytes_on(nbytes, *device);
    const Stream stream = make_stream(cuda);
    check_cuda(cuda, cuda.memory_set(addresses.begin(), 0, nbytes, stream.get()), what);
    if (wait_stream(*device, stream.get(), what, deadline)) return;
    throw TransferTimeout(what +
                          " was not done in time: a kernel keeps the GPU busy; wait for it, "
                          "or give the Endpoint a longer timeout");
  }

  const std::shared_ptr<Device> device;
  const driver::CudaMemoryProperties properties;
  const std::uint64_t nbytes;  // whole pages
  const Physical physical;
  const Addresses addresses;
  const Mapped mapped;
};

std::shared_ptr<Buffer> Buffer::create(std::shared_ptr<Device> device, std::uint64_t nbytes,
                                       const Deadline& deadline) {
  if (nbytes == 0) return std::shared_ptr<Buffer>(new Buffer(0, nullptr));
  const DeviceGuard guard(*device);
  auto mapping = std::make_unique<Mapping>(device, nbytes, deadline);
  // From here on the GPU may work on it: its end is that of a Buffer.
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
  // CUDA does not survive fork(): in a child there is nothing to give back.
  if (mapping == nullptr || generation_ != fork_generation()) return;
  const auto give_back = [mapping]() noexcept {
    const std::shared_ptr<Device> device = mapping->device;
    try {
      const DeviceGuard guard(*device);
      wait_until_idle(*device);
    } catch (const CudaError&) {
      // The context is gone, as at process exit: nothing runs that could use the memory.
    }
    delete mapping;
    --buffers_going;
  };
  ++buffers_going;
  // Whoever drops the last hold must not wait for the GPU: it may be the thread that answers peers,
  // and a kernel may wait for what that thread delivers.
  try {
    std::thread thread(give_back);
    ::pthread_setname_np(thread.native_handle(), "zh-free");
    thread.detach();
  } catch (const std::system_error&) {
    give_back();  // no thread is to be had
  }
}

}  // namespace zerohop::gpu
