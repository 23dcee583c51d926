// The gpu layer and the registrations on a real GPU; the adapter is a fake that takes any dma-buf.
#include <cuda.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "engine/memory/gpu_registrations.hpp"
#include "fake_verbs.hpp"
#include "gpu/copier.hpp"
#include "gpu/default_stream.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/write_order.hpp"

namespace zerohop::engine {
namespace {

using testing::FakeVerbs;
constexpr std::uint64_t kMiB = 1 << 20;

constexpr bool same(long long ours, long long theirs) { return ours == theirs; }

// The numbers that driver/cuda_constants.hpp spells are those of the toolkit.
static_assert(same(driver::kCudaErrorInvalidValue, CUDA_ERROR_INVALID_VALUE));
static_assert(same(driver::kCudaErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(same(driver::kCudaErrorNotInitialized, CUDA_ERROR_NOT_INITIALIZED));
static_assert(same(driver::kCudaErrorInvalidContext, CUDA_ERROR_INVALID_CONTEXT));
static_assert(same(driver::kCudaErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED));
static_assert(same(driver::kCudaComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(same(driver::kCudaComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(same(driver::kCudaGpudirectWithVmm,
                   CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED));
static_assert(same(driver::kCudaGpudirectSupported, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED));
static_assert(same(driver::kCudaVmmSupported,
                   CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
static_assert(same(driver::kCudaFdExportSupported,
                   CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED));
static_assert(same(driver::kCudaErrorCaptureFirst, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
static_assert(same(driver::kCudaErrorCaptureLast, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
static_assert(same(driver::kCudaMemoryPinned, CU_MEM_ALLOCATION_TYPE_PINNED));
static_assert(same(driver::kCudaLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE));
static_assert(same(driver::kCudaHandleNone, CU_MEM_HANDLE_TYPE_NONE));
static_assert(same(driver::kCudaHandleFd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
static_assert(same(driver::kCudaAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
static_assert(same(driver::kCudaGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
static_assert(sizeof(driver::CudaMemoryProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(driver::CudaMemoryProperties, location) ==
              offsetof(CUmemAllocationProp, location));
static_assert(offsetof(driver::CudaMemoryProperties, gpudirect_capable) ==
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(sizeof(driver::CudaMemoryAccess) == sizeof(CUmemAccessDesc));
static_assert(offsetof(driver::CudaMemoryAccess, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(same(driver::kCudaFlushOptions,
                   CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS));
static_assert(same(driver::kCudaWritesOrdering,
                   CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING));
static_assert(same(driver::kCudaDmabufSupported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED));
static_assert(same(driver::kCudaFlushByHost, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST));
static_assert(same(driver::kCudaFlushByStream, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_MEMOPS));
static_assert(same(driver::kCudaScopeNone, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE));
static_assert(same(driver::kCudaScopeOwner, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER));
static_assert(same(driver::kCudaScopeOwner, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
static_assert(same(driver::kCudaScopeAllDevices, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES));
static_assert(same(driver::kCudaFlushCurrentContext,
                   CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX));
static_assert(same(driver::kCudaMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
static_assert(same(driver::kCudaAddressOnGpu, CU_POINTER_ATTRIBUTE_DEVICE_POINTER));
static_assert(same(driver::kCudaSyncMemops, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS));
static_assert(same(driver::kCudaBufferId, CU_POINTER_ATTRIBUTE_BUFFER_ID));
static_assert(same(driver::kCudaIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED));
static_assert(same(driver::kCudaDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
static_assert(same(driver::kCudaIsLegacyIpcCapable,
                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE));
static_assert(same(driver::kCudaRangeBegin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR));
static_assert(same(driver::kCudaRangeNbytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE));
static_assert(same(driver::kCudaAllowedHandleTypes, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES));
static_assert(same(driver::kCudaIsGpudirectCapable,
                   CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE));
static_assert(same(driver::kCudaPool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE));
static_assert(same(driver::kCudaMappingNbytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE));
static_assert(same(driver::kCudaMappingBegin, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR));
static_assert(same(driver::kCudaMemoryHost, CU_MEMORYTYPE_HOST));
static_assert(same(driver::kCudaMemoryDevice, CU_MEMORYTYPE_DEVICE));
static_assert(same(driver::kCudaRangeHandleDmabuf, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD));
static_assert(same(driver::kCudaDmabufMappingPcie, CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE));
static_assert(same(driver::kCudaCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED));
static_assert(same(driver::kCudaErrorNotReady, CUDA_ERROR_NOT_READY));
static_assert(same(driver::kCudaErrorTimeout, CUDA_ERROR_TIMEOUT));
static_assert(same(driver::kCudaHostPortable, CU_MEMHOSTALLOC_PORTABLE));
static_assert(same(driver::kCudaRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE));
static_assert(same(driver::kCudaRegisterMapped, CU_MEMHOSTREGISTER_DEVICEMAP));
static_assert(same(driver::kCudaRegisterIoMemory, CU_MEMHOSTREGISTER_IOMEMORY));
static_assert(same(driver::kCudaRegisterReadOnly, CU_MEMHOSTREGISTER_READ_ONLY));
static_assert(same(driver::kCudaErrorAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
static_assert(same(driver::kCudaStreamNonBlocking, CU_STREAM_NON_BLOCKING));
static_assert(same(driver::kCudaP2pNativeAtomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED));
static_assert(same(driver::kCudaEventDisableTiming, CU_EVENT_DISABLE_TIMING));
static_assert(sizeof(driver::CudaAddress) == sizeof(CUdeviceptr));
static_assert(sizeof(driver::CudaAllocation) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(driver::CudaContext) == sizeof(CUcontext));

std::shared_ptr<const driver::Cuda> cuda() {
  const auto& library = driver::libcuda();
  INFO(library.reason);
  REQUIRE(library.cuda != nullptr);
  return library.cuda;
}

// cuMemAlloc through the table.
class Plain {
 public:
  Plain(const gpu::Device& device, std::size_t nbytes) : device_(device), nbytes_(nbytes) {
    const gpu::DeviceGuard guard(device_);
    driver::check_cuda(device_.cuda(), device_.cuda().memory_allocate(&address_, nbytes),
                       "cuMemAlloc");
  }
  ~Plain() {
    const gpu::DeviceGuard guard(device_);
    (void)device_.cuda().memory_free(address_);
  }
  Extent extent() const { return {address_, address_ + nbytes_}; }

 private:
  const gpu::Device& device_;
  driver::CudaAddress address_ = 0;
  std::size_t nbytes_;
};

struct Fixture {
  FakeVerbs verbs;
  std::shared_ptr<gpu::Device> device = gpu::Device::open(cuda(), 0);
  GpuOptions options;

  Fixture() { verbs.device.max_mr_size = ~std::uint64_t{0}; }
  GpuRegistrations make() {
    return {{rdma::ProtectionDomain::create(rdma::Device::open(verbs.table(), "fake0")), nullptr},
            cuda(),
            ask_host(),
            options};
  }
};

TEST_CASE("a guard leaves threads without a context as they were") {
  const auto device = gpu::Device::open(cuda(), 0);
  std::thread([&] {
    CHECK_THROWS_AS(driver::check_cuda(*cuda(), cuda()->flush_gpudirect_writes(0, 100), "flush"),
                    CudaError);
    gpu::flush_writes(*device);
    CHECK_THROWS_AS(driver::check_cuda(*cuda(), cuda()->flush_gpudirect_writes(0, 100), "flush"),
                    CudaError);
  }).join();
}

// Also where the memory lies across several chunks of cuMemCreate, or is managed: tests/gpu/*.py.
TEST_CASE_FIXTURE(Fixture, "bytes come back through the lanes of a copier as they went") {
  REQUIRE(same(reinterpret_cast<long long>(driver::kCudaLegacyStream),
               reinterpret_cast<long long>(CU_STREAM_LEGACY)));
  constexpr std::size_t kChunk = 64 << 10;
  const Plain memory(*device, kMiB);
  gpu::Copier copier(device, kChunk);
  driver::CopyLane* lane = nullptr;
  REQUIRE(copier.take(lane) == 0);
  for (unsigned i = 0; i < driver::CopyLane::kChunks; ++i) {
    std::fill_n(lane->chunk(i), kChunk, static_cast<std::byte>(i + 1));
    REQUIRE(lane->start_to_device(memory.extent().begin + 3 + i * kChunk, lane->chunk(i), kChunk) ==
            0);
  }
  REQUIRE(lane->mark(0) == 0);
  REQUIRE(lane->wait(0) == 0);
  REQUIRE(lane->start_to_host(lane->chunk(0), memory.extent().begin + 3 + kChunk / 2, kChunk) == 0);
  REQUIRE(lane->mark(1) == 0);
  REQUIRE(lane->wait(1) == 0);
  CHECK(lane->chunk(0)[kChunk / 2 - 1] == std::byte{1});
  CHECK(lane->chunk(0)[kChunk / 2] == std::byte{2});
  CHECK(lane->start_to_host(lane->chunk(0), 0x1000, 8) != 0);  // no memory of a GPU
  copier.give_back(*lane);
  CHECK(gpu::wait_default_stream(*device, Deadline::after(Deadline::Seconds(10))));
}

TEST_CASE_FIXTURE(Fixture,
                  "the pair is tried with the memory at hand, which leaves nothing behind") {
  {
    auto registrations = make();
    const Plain memory(*device, 4096);
    (void)registrations.find_or_create({.extent = memory.extent(), .writable = true});
    const PairFacts facts = registrations.pair_facts(0);
    CHECK(facts.dmabuf.worked());
    CHECK(facts.kernel > 4000);
    CHECK(!facts.data_direct);
  }
  CHECK(verbs.live() == 0);
}

TEST_CASE_FIXTURE(Fixture,
                  "memory is registered, ordered with synchronous copies, and found again") {
  auto registrations = make();
  const Plain memory(*device, 8 * kMiB);
  const auto first = registrations.find_or_create({.extent = memory.extent(), .writable = true});
  REQUIRE(first.region);
  CHECK(first.choice->way == RegistrationWay::dmabuf);
  CHECK(gpu::find_allocation(*cuda(), memory.extent().begin).sync_memops);
  const auto again = registrations.find_or_create(
      {.extent = {memory.extent().begin + 100, memory.extent().begin + 200}, .writable = true});
  CHECK(again.region.get() == first.region.get());
}

TEST_CASE_FIXTURE(Fixture, "memory freed and allocated at the same address is registered anew") {
  auto registrations = make();
  int came_again = 0;
  std::uint64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    const Plain memory(*device, 32 * kMiB);
    came_again += memory.extent().begin == last;
    last = memory.extent().begin;
    (void)registrations.find_or_create({.extent = memory.extent(), .writable = true});
  }
  CHECK(came_again > 0);
  CHECK(registrations.stats().hits == 0);
  CHECK(registrations.stats().misses == 20);
  CHECK(registrations.stats().stale > 0);
}

double median_us(int count, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const auto end = std::chrono::steady_clock::now();
    times.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
  }
  std::ranges::nth_element(times, times.begin() + count / 2);
  return times[count / 2];
}

TEST_CASE_FIXTURE(Fixture, "a warm registration takes at most 2 us") {
  auto registrations = make();
  const Plain memory(*device, 64 * kMiB);
  const GpuRegistrations::Request request{.extent = memory.extent(), .writable = true};
  (void)registrations.find_or_create(request);
  const double warm = median_us(10000, [&] { (void)registrations.find_or_create(request); });
  const double cold = median_us(100, [&] {
    (void)registrations.find_or_create(
        {.extent = memory.extent(), .writable = true, .shared = false});
  });
  const double flush = median_us(1000, [&] { gpu::flush_writes(*device); });
  std::printf(
      "ROW {\"test\": \"registration\", \"warm_us\": %.3f, \"export_us\": %.1f, "
      "\"flush_us\": %.3f}\n",
      warm, cold, flush);
  CHECK(warm <= 2.0);
}

}  // namespace
}  // namespace zerohop::engine
