#include "fake_cuda.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "fake_calls.hpp"

namespace zerohop::testing {
namespace {

using driver::CudaAddress;
using driver::CudaResult;
using driver::kCudaErrorInvalidContext;
using driver::kCudaErrorInvalidValue;
using driver::kCudaErrorNotSupported;
using driver::kCudaSuccess;
using gpu::MemoryKind;

FakeCuda* current = nullptr;  // the table's functions have no context argument
int context_object = 0;       // its address is the primary context
constexpr driver::CudaAllocation kRetained = ~0ull;  // by memory_retain_allocation
thread_local int depth = 0;                          // of this thread's context stack
thread_local driver::CudaCaptureMode capture_mode = 0;

CudaResult init(unsigned) { return current->fails("init") ? current->error : kCudaSuccess; }

CudaResult driver_get_version(int* version) {
  if (current->fails("driver_get_version")) return current->error;
  *version = current->driver_version;
  return kCudaSuccess;
}
CudaResult device_get_count(int* count) {
  if (current->fails("device_get_count")) return current->error;
  *count = current->gpus;
  return kCudaSuccess;
}
CudaResult device_get(driver::CudaDevice* device, int ordinal) {
  if (current->fails("device_get")) return current->error;
  if (ordinal < 0 || ordinal >= current->gpus) return 101;
  *device = ordinal;
  return kCudaSuccess;
}
CudaResult device_get_name(char* name, int nbytes, driver::CudaDevice) {
  if (current->fails("device_get_name")) return current->error;
  std::snprintf(name, static_cast<std::size_t>(nbytes), "Fake GPU");
  return kCudaSuccess;
}
CudaResult device_get_uuid(driver::CudaUuid* uuid, driver::CudaDevice device) {
  if (current->fails("device_get_uuid")) return current->error;
  *uuid = {{static_cast<unsigned char>(0x10 + device)}};
  return kCudaSuccess;
}
CudaResult device_get_attribute(int* value, int attribute, driver::CudaDevice) {
  if (current->fails("device_get_attribute")) return current->error;
  *value = current->attributes.at(attribute);
  return kCudaSuccess;
}
CudaResult device_get_pci_bus_id(char* text, int nbytes, driver::CudaDevice device) {
  if (current->fails("device_get_pci_bus_id")) return current->error;
  std::snprintf(text, static_cast<std::size_t>(nbytes), "FFFF:FF:1F.%d", 7 - device);
  return kCudaSuccess;
}

CudaResult primary_context_retain(driver::CudaContext* context, driver::CudaDevice) {
  if (current->fails("primary_context_retain")) return current->error;
  ++current->retained;
  *context = &context_object;
  return kCudaSuccess;
}
CudaResult primary_context_release(driver::CudaDevice) {
  --current->retained;
  return kCudaSuccess;
}
CudaResult context_push(driver::CudaContext context) {
  if (current->fails("context_push")) return current->error;
  if (context != &context_object || current->retained == 0) return kCudaErrorInvalidContext;
  ++depth;
  ++current->depth;
  return kCudaSuccess;
}
CudaResult context_pop(driver::CudaContext* context) {
  if (depth == 0) return kCudaErrorInvalidContext;
  --depth;
  --current->depth;
  *context = &context_object;
  return kCudaSuccess;
}
CudaResult context_get_current(driver::CudaContext* context) {
  *context = depth == 0 ? nullptr : &context_object;
  return kCudaSuccess;
}
CudaResult context_get_device(driver::CudaDevice* device) {
  *device = 0;
  return depth == 0 ? kCudaErrorInvalidContext : kCudaSuccess;
}
CudaResult thread_exchange_capture_mode(driver::CudaCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  current->capture_mode = capture_mode;
  return kCudaSuccess;
}

CudaResult device_can_access_peer(int* can, driver::CudaDevice device, driver::CudaDevice) {
  if (current->fails("device_can_access_peer")) return current->error;
  *can = current->neighbours.contains(device);
  return kCudaSuccess;
}
CudaResult device_get_p2p_attribute(int* value, driver::CudaP2pAttribute attribute,
                                    driver::CudaDevice device, driver::CudaDevice peer) {
  if (current->fails("device_get_p2p_attribute")) return current->error;
  if (attribute != driver::kCudaP2pNativeAtomics || device == peer) return kCudaErrorInvalidValue;
  *value = current->native_atomics;
  return kCudaSuccess;
}
CudaResult context_get_stream_priority_range(int* least, int* greatest) {
  if (current->fails("context_get_stream_priority_range")) return current->error;
  if (depth == 0) return kCudaErrorInvalidContext;
  *least = 0;
  *greatest = FakeCuda::kGreatestPriority;
  return kCudaSuccess;
}
CudaResult context_enable_peer_access(driver::CudaContext, unsigned) {
  if (current->fails("context_enable_peer_access")) return current->error;
  if (current->refuses_peers) return 217;  // CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
  return depth == 0 ? kCudaErrorInvalidContext : kCudaSuccess;
}
CudaResult context_synchronize() {
  if (current->fails("context_synchronize")) return current->error;
  if (depth == 0) return kCudaErrorInvalidContext;
  // A call outside relaxed mode invalidates a capture.
  if (current->capturing && capture_mode == driver::kCudaCaptureRelaxed) {
    return driver::kCudaErrorCaptureFirst;
  }
  current->busy.wait(true);
  ++current->synchronized;
  return kCudaSuccess;
}

CudaResult pointer_get_attributes(unsigned count, int* attributes, void** values,
                                  CudaAddress address) {
  if (current->fails("pointer_get_attributes")) return current->error;
  const auto* memory = current->find(address);
  if (memory == nullptr) return kCudaSuccess;  // the values stay at zero
  for (unsigned i = 0; i < count; ++i) {
    put_pointer_attribute(*memory, address, attributes[i], values[i]);
  }
  return kCudaSuccess;
}
CudaResult pointer_set_attribute(const void*, int, CudaAddress address) {
  if (current->fails("pointer_set_attribute")) return current->error;
  const auto* memory = current->find(address);
  if (memory == nullptr) return kCudaErrorInvalidValue;
  return memory->kind == MemoryKind::vmm ? kCudaErrorNotSupported : kCudaSuccess;
}

CudaResult memory_allocate(CudaAddress* address, std::size_t nbytes) {
  if (current->fails("memory_allocate")) return current->error;
  if (current->no_memory) return driver::kCudaErrorOutOfMemory;
  if (depth == 0) return kCudaErrorInvalidContext;
  ++current->allocated;
  *address = current->copies.allocate(nbytes, FakeVmm::kGarbage);
  current->add(MemoryKind::plain, *address, nbytes);
  return kCudaSuccess;
}
CudaResult memory_free(CudaAddress address) {
  --current->allocated;
  current->remove(address);
  current->copies.release(address);
  return kCudaSuccess;
}
CudaResult memory_get_info(std::size_t* free, std::size_t* total) {
  if (current->fails("memory_get_info")) return current->error;
  if (depth == 0) return kCudaErrorInvalidContext;
  *free = current->vmm.free_nbytes;
  *total = std::size_t{1} << 30;
  return kCudaSuccess;
}
CudaResult memory_get_granularity(std::size_t* nbytes, const driver::CudaMemoryProperties*,
                                  int option) {
  if (current->fails("memory_get_granularity")) return current->error;
  if (option != driver::kCudaGranularityMinimum) return kCudaErrorInvalidValue;
  *nbytes = FakeVmm::kPage;
  return kCudaSuccess;
}
CudaResult memory_create(driver::CudaAllocation* allocation, std::size_t nbytes,
                         const driver::CudaMemoryProperties* properties, unsigned long long) {
  if (current->fails("memory_create")) return current->error;
  return current->vmm.create(allocation, nbytes, *properties);
}
CudaResult memory_reserve(CudaAddress* address, std::size_t nbytes, std::size_t, CudaAddress,
                          unsigned long long) {
  if (current->fails("memory_reserve")) return current->error;
  return current->vmm.reserve(address, nbytes);
}
CudaResult memory_free_addresses(CudaAddress address, std::size_t nbytes) {
  return current->vmm.free_addresses(address, nbytes);
}
CudaResult memory_map(CudaAddress address, std::size_t nbytes, std::size_t,
                      driver::CudaAllocation allocation, unsigned long long) {
  if (current->fails("memory_map")) return current->error;
  const CudaResult result = current->vmm.map(address, nbytes, allocation);
  if (result == kCudaSuccess) current->add(MemoryKind::vmm, address, nbytes);
  return result;
}
CudaResult memory_unmap(CudaAddress address, std::size_t nbytes) {
  current->remove(address);
  return current->vmm.unmap(address, nbytes);
}
CudaResult memory_set_access(CudaAddress address, std::size_t nbytes,
                             const driver::CudaMemoryAccess* accesses, std::size_t count) {
  if (current->fails("memory_set_access")) return current->error;
  return current->vmm.set_access(address, nbytes, {accesses, accesses + count});
}
CudaResult memory_set(CudaAddress address, unsigned char value, std::size_t nbytes, void* stream) {
  if (current->fails("memory_set")) return current->error;
  return depth == 0 ? kCudaErrorInvalidContext
                    : current->copies.set(address, std::byte{value}, nbytes, stream);
}
CudaResult memory_retain_allocation(driver::CudaAllocation* allocation, void* address) {
  if (current->fails("memory_retain_allocation")) return current->error;
  const auto* memory = current->find(reinterpret_cast<CudaAddress>(address));
  if (memory == nullptr || memory->kind != MemoryKind::vmm) return kCudaErrorInvalidValue;
  ++current->allocations_held;
  *allocation = kRetained;
  return kCudaSuccess;
}
CudaResult memory_release_allocation(driver::CudaAllocation allocation) {
  if (allocation != kRetained) return current->vmm.release(allocation);
  --current->allocations_held;
  return kCudaSuccess;
}

bool is_mapped(std::uint64_t begin, std::uint64_t end) {
  while (begin < end) {
    const auto* memory = current->find(begin);
    if (memory == nullptr) return false;
    begin = (memory->mapping.end + 4095) & ~std::uint64_t{4095};
  }
  return true;
}

CudaResult memory_export_range(void* handle, CudaAddress address, std::size_t nbytes, int type,
                               unsigned long long flags) {
  if (current->fails("memory_export_range")) return current->error;
  if (depth == 0) return kCudaErrorInvalidContext;
  if (current->export_error != kCudaSuccess) return current->export_error;
  if (flags != 0 && !current->pcie_mapping) return kCudaErrorNotSupported;
  if (type != driver::kCudaRangeHandleDmabuf || (address | nbytes) % 4096 != 0) {
    return kCudaErrorInvalidValue;
  }
  // From the beginning of an allocation on its contents, for a simulated adapter.
  int fd = current->exports_map ? current->copies.share(address) : ::eventfd(0, EFD_CLOEXEC);
  if (fd < 0 && !is_mapped(address, address + nbytes)) return kCudaErrorInvalidValue;
  if (fd < 0) fd = ::memfd_create("fake dma-buf", MFD_CLOEXEC);
  current->exports.push_back({{address, address + nbytes}, flags, fd});
  *static_cast<int*>(handle) = fd;
  return kCudaSuccess;
}
CudaResult memory_export(void* handle, driver::CudaAllocation, int type, unsigned long long) {
  if (current->fails("memory_export")) return current->error;
  if (type != driver::kCudaHandleFd) return kCudaErrorInvalidValue;
  return current->vmm.export_fd(static_cast<int*>(handle), 1);  // the first one allocated
}
CudaResult memory_import(driver::CudaAllocation* allocation, void* handle, int) {
  if (current->fails("memory_import")) return current->error;
  return current->vmm.import_fd(allocation,
                                static_cast<int>(reinterpret_cast<std::intptr_t>(handle)));
}
CudaResult ipc_export(driver::CudaIpcHandle* handle, CudaAddress address) {
  if (current->fails("ipc_export")) return current->error;
  ++current->exports_hanging;
  current->exports_hang.wait(true);
  --current->exports_hanging;
  const CudaAddress begin = current->find(address)->mapping.begin;
  std::memcpy(handle->bytes, &begin, sizeof begin);
  return kCudaSuccess;
}
CudaResult ipc_open(CudaAddress* address, driver::CudaIpcHandle handle, unsigned) {
  if (current->fails("ipc_open")) return current->error;
  if (depth == 0) return kCudaErrorInvalidContext;
  std::memcpy(address, handle.bytes, sizeof *address);  // as if both processes had it there
  ++current->opened;
  return kCudaSuccess;
}
CudaResult ipc_close(CudaAddress) {
  --current->opened;
  return kCudaSuccess;
}
CudaResult flush_gpudirect_writes(int target, int scope) {
  if (current->fails("flush_gpudirect_writes")) return current->error;
  if (depth == 0) return kCudaErrorInvalidContext;
  if (target != driver::kCudaFlushCurrentContext || scope != driver::kCudaScopeOwner) {
    return kCudaErrorInvalidValue;
  }
  ++current->flushes;
  return kCudaSuccess;
}
CudaResult get_error_name(CudaResult, const char** text) {
  *text = "CUDA_ERROR_FAKE";
  return kCudaSuccess;
}
CudaResult get_error_string(CudaResult, const char** text) {
  *text = "made to fail";
  return kCudaSuccess;
}

std::shared_ptr<const driver::Cuda> make_table() {
  auto table = std::make_shared<driver::Cuda>();
#define ZEROHOP_FAKE(member, symbol, version, parameters) table->member = member;
  ZEROHOP_CUDA_SYMBOLS(ZEROHOP_FAKE)
#undef ZEROHOP_FAKE
  return table;
}

}  // namespace

FakeCuda& FakeCuda::in_use() { return *current; }
bool FakeCuda::exists() { return current != nullptr; }

bool FakeCuda::has_context() { return testing::depth > 0; }

driver::CudaCaptureMode FakeCuda::mode_here() { return testing::capture_mode; }

FakeCuda::FakeCuda() : table_(make_table()) {
  current = this;
  attributes = {{driver::kCudaComputeMajor, 9},
                {driver::kCudaComputeMinor, 0},
                {driver::kCudaGpudirectSupported, 1},
                {driver::kCudaGpudirectWithVmm, 1},
                {driver::kCudaDmabufSupported, 1},
                {driver::kCudaVmmSupported, 1},
                {driver::kCudaFdExportSupported, 1},
                {driver::kCudaSameRegisteredAddress, 1},
                {driver::kCudaFlushOptions, driver::kCudaFlushByHost},
                {driver::kCudaWritesOrdering, driver::kCudaScopeOwner}};
}

driver::CudaContext FakeCuda::context() { return &context_object; }

FakeCuda::~FakeCuda() { current = nullptr; }

bool FakeCuda::fails(const char* function) {
  if (gone) return true;
  if (++calls != fail_at) return false;
  failed = function;
  return true;
}

std::uint64_t FakeCuda::add(MemoryKind kind, std::uint64_t begin, std::uint64_t nbytes) {
  const std::lock_guard lock(mutex_);
  const Extent extent{begin, begin + nbytes};
  Memory memory{.kind = kind, .range = extent, .mapping = extent, .buffer_id = next_buffer_id_++};
  memory.gpudirect_capable = kind == MemoryKind::plain || kind == MemoryKind::vmm;
  memory_[begin] = memory;
  return memory.buffer_id;
}

void FakeCuda::add_chunks(std::uint64_t begin, std::uint64_t chunk_nbytes, int count) {
  const Extent reservation{begin, begin + chunk_nbytes * static_cast<std::uint64_t>(count)};
  for (std::uint64_t at = begin; at < reservation.end; at += chunk_nbytes) {
    add(MemoryKind::vmm, at, chunk_nbytes);
    find(at)->range = reservation;
  }
}

std::uint64_t FakeCuda::add_bytes(std::uint64_t nbytes, std::byte fill) {
  const std::uint64_t begin = copies.allocate(nbytes, fill);
  add(MemoryKind::plain, begin, nbytes);
  return begin;
}

void FakeCuda::remove(std::uint64_t begin) {
  const std::lock_guard lock(mutex_);
  memory_.erase(begin);
}

FakeCuda::Memory* FakeCuda::find(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  auto after = memory_.upper_bound(address);
  if (after == memory_.begin()) return nullptr;
  Memory& memory = std::prev(after)->second;
  return address < memory.mapping.end ? &memory : nullptr;
}

int FakeCuda::open_exports() const {
  return static_cast<int>(
      std::ranges::count_if(exports, [](const Export& e) { return ::fcntl(e.fd, F_GETFD) != -1; }));
}

}  // namespace zerohop::testing
