// The kinds of memory that CUDA knows; each is exported, mapped and registered differently.
#pragma once

namespace zerohop::gpu {

enum class MemoryKind {
  unknown,  // not CUDA's: pageable host memory, or freed
  plain,    // cuMemAlloc, cudaMalloc
  vmm,      // cuMemCreate mapped into reserved addresses: torch's expandable segments, JAX, CuPy
  pool,     // cuMemAllocAsync, cudaMallocAsync
  managed,  // cuMemAllocManaged: it migrates between host and GPU
  pinned,   // page-locked host memory, allocated (cuMemHostAlloc) or registered
            // (cuMemHostRegister): the driver does not tell them apart, and nothing depends on it
};

// "cudaMalloc memory", "memory of a stream-ordered pool (cudaMallocAsync)", ...
const char* kind_name(MemoryKind kind) noexcept;

constexpr bool is_on_gpu(MemoryKind kind) noexcept {
  return kind == MemoryKind::plain || kind == MemoryKind::vmm || kind == MemoryKind::pool;
}

}  // namespace zerohop::gpu
