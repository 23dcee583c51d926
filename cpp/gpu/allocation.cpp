#include "gpu/allocation.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"

namespace zerohop::gpu {
namespace {

// cuPointerGetAttributes leaves a value at zero where the address is not CUDA's or the attribute
// does not apply; it fails only for invalid arguments.
struct Attributes {
  unsigned memory_type = 0;
  unsigned managed = 0;
  int ordinal = 0;
  std::uint64_t buffer_id = 0;
  std::uint64_t range_begin = 0, range_nbytes = 0;
  std::uint64_t mapping_begin = 0, mapping_nbytes = 0;
  unsigned gpudirect_capable = 0, legacy_ipc_capable = 0, sync_memops = 0;
  std::uint64_t handle_types = 0;
  std::uint64_t pool = 0;
};

struct Query {
  driver::CudaPointerAttribute attribute;
  void* value;
};

template <std::size_t N>
void ask(const driver::Cuda& cuda, std::uint64_t address, const std::array<Query, N>& queries) {
  std::array<driver::CudaPointerAttribute, N> attributes;
  std::array<void*, N> values;
  for (std::size_t i = 0; i < N; ++i) {
    attributes[i] = queries[i].attribute;
    values[i] = queries[i].value;
  }
  driver::check_cuda(cuda,
                     cuda.pointer_get_attributes(N, attributes.data(), values.data(), address),
                     "cuPointerGetAttributes");
}

// The part around `address` that is both one allocation and one mapping. A reservation may hold
// several mappings (cuMemMap), and a mapping several allocations (small cuMemAlloc ones).
Extent chunk_of(const Attributes& a) {
  return {std::max(a.range_begin, a.mapping_begin),
          std::min(a.range_begin + a.range_nbytes, a.mapping_begin + a.mapping_nbytes)};
}

bool is_vmm(const driver::Cuda& cuda, std::uint64_t address) {
  driver::CudaAllocation allocation = 0;
  void* pointer = reinterpret_cast<void*>(address);
  if (cuda.memory_retain_allocation(&allocation, pointer) != driver::kCudaSuccess) return false;
  driver::check_cuda(cuda, cuda.memory_release_allocation(allocation), "cuMemRelease");
  return true;
}

MemoryKind kind_of(const driver::Cuda& cuda, std::uint64_t address, const Attributes& a) {
  if (a.managed != 0) return MemoryKind::managed;
  if (a.memory_type == driver::kCudaMemoryHost) return MemoryKind::pinned;
  if (a.memory_type != driver::kCudaMemoryDevice) return MemoryKind::unknown;
  if (a.pool != 0) return MemoryKind::pool;
  return is_vmm(cuda, address) ? MemoryKind::vmm : MemoryKind::plain;
}

Chunk chunk_at(const driver::Cuda& cuda, std::uint64_t address) {
  Attributes a;
  ask(cuda, address,
      std::array{Query{driver::kCudaBufferId, &a.buffer_id},
                 Query{driver::kCudaRangeBegin, &a.range_begin},
                 Query{driver::kCudaRangeNbytes, &a.range_nbytes},
                 Query{driver::kCudaMappingBegin, &a.mapping_begin},
                 Query{driver::kCudaMappingNbytes, &a.mapping_nbytes},
                 Query{driver::kCudaIsGpudirectCapable, &a.gpudirect_capable}});
  return {chunk_of(a), a.buffer_id, a.gpudirect_capable != 0};
}

[[noreturn]] void refuse_hole(const Extent& extent, std::uint64_t address) {
  char text[160];
  std::snprintf(text, sizeof text,
                "the array at %#llx to %#llx lies in GPU memory that is not mapped at %#llx: it "
                "was freed, or belongs to another process",
                static_cast<unsigned long long>(extent.begin),
                static_cast<unsigned long long>(extent.end),
                static_cast<unsigned long long>(address));
  throw RegistrationError(text, EFAULT);
}

}  // namespace

const char* kind_name(MemoryKind kind) noexcept {
  switch (kind) {
    case MemoryKind::unknown: break;
    case MemoryKind::plain: return "cudaMalloc memory";
    case MemoryKind::vmm: return "virtual memory (cuMemCreate)";
    case MemoryKind::pool: return "memory of a stream-ordered pool (cudaMallocAsync)";
    case MemoryKind::managed: return "managed memory (cudaMallocManaged)";
    case MemoryKind::pinned: return "pinned host memory";
  }
  return "memory unknown to CUDA";
}

Allocation find_allocation(const driver::Cuda& cuda, std::uint64_t address) {
  Attributes a;
  ask(cuda, address,
      std::array{
          Query{driver::kCudaMemoryType, &a.memory_type}, Query{driver::kCudaIsManaged, &a.managed},
          Query{driver::kCudaDeviceOrdinal, &a.ordinal}, Query{driver::kCudaBufferId, &a.buffer_id},
          Query{driver::kCudaRangeBegin, &a.range_begin},
          Query{driver::kCudaRangeNbytes, &a.range_nbytes},
          Query{driver::kCudaMappingBegin, &a.mapping_begin},
          Query{driver::kCudaMappingNbytes, &a.mapping_nbytes},
          Query{driver::kCudaIsGpudirectCapable, &a.gpudirect_capable},
          Query{driver::kCudaIsLegacyIpcCapable, &a.legacy_ipc_capable},
          Query{driver::kCudaAllowedHandleTypes, &a.handle_types},
          Query{driver::kCudaSyncMemops, &a.sync_memops}, Query{driver::kCudaPool, &a.pool}});
  Allocation allocation;
  allocation.kind = kind_of(cuda, address, a);
  if (allocation.kind == MemoryKind::unknown) return allocation;
  allocation.ordinal = a.ordinal;
  allocation.extent = chunk_of(a);
  allocation.buffer_id = a.buffer_id;
  allocation.gpudirect_capable = a.gpudirect_capable != 0;
  allocation.legacy_ipc_capable = a.legacy_ipc_capable != 0;
  allocation.handle_types = a.handle_types;
  allocation.sync_memops = a.sync_memops != 0;
  return allocation;
}

std::vector<Chunk> find_chunks(const driver::Cuda& cuda, const Extent& extent) {
  std::vector<Chunk> chunks;
  for (std::uint64_t at = extent.begin; at < extent.end; at = chunks.back().extent.end) {
    const Chunk chunk = chunk_at(cuda, at);
    if (chunk.buffer_id == 0 || chunk.extent.end <= at) refuse_hole(extent, at);
    chunks.push_back(chunk);
  }
  return chunks;
}

bool set_sync_memops(const driver::Cuda& cuda, std::uint64_t address) noexcept {
  const unsigned on = 1;
  return cuda.pointer_set_attribute(&on, driver::kCudaSyncMemops, address) == driver::kCudaSuccess;
}

}  // namespace zerohop::gpu
