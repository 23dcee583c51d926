// What the driver knows about an address: its allocation, its kind, and its identity.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/layout.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/memory_kind.hpp"

namespace zerohop::gpu {

// For memory of cuMemCreate this is one mapped chunk; an array may span several.
struct Allocation {
  MemoryKind kind = MemoryKind::unknown;
  int ordinal = 0;                  // GPU that holds it, or through which it was allocated
  Extent extent;                    // of the chunk or allocation
  std::uint64_t buffer_id = 0;      // unique in the process, never reused
  bool gpudirect_capable = false;   // adapters may access it
  bool legacy_ipc_capable = false;  // cuIpcGetMemHandle works
  std::uint64_t handle_types = 0;   // bit mask of the shareable handle types it can be exported as
  bool sync_memops = false;         // synchronous copies are ordered with the writes of adapters
};

// Kind `unknown` for an address that CUDA does not know. Throws CudaError. Needs cuInit, but no
// current context.
Allocation find_allocation(const driver::Cuda& cuda, std::uint64_t address);

// The identity of the memory in an address range: which chunk lies where.
struct Chunk {
  Extent extent;
  std::uint64_t buffer_id = 0;
  bool gpudirect_capable = false;  // not part of the identity: fixed when the chunk is made
  friend bool operator==(const Chunk& a, const Chunk& b) noexcept {
    return a.extent.begin == b.extent.begin && a.extent.end == b.extent.end &&
           a.buffer_id == b.buffer_id;
  }
};

// All chunks that `extent` touches, in order; the last one is included whole. Two equal results
// mean that nothing in between was freed, unmapped or reallocated. Costs one driver call per chunk,
// as the driver describes one address at a time. Throws RegistrationError when part of the range is
// unmapped.
std::vector<Chunk> find_chunks(const driver::Cuda& cuda, const Extent& extent);

// Orders the program's synchronous copies and memsets with adapters' writes to the allocation.
// False where the driver refuses: memory of cuMemCreate does not have this attribute.
bool set_sync_memops(const driver::Cuda& cuda, std::uint64_t address) noexcept;

}  // namespace zerohop::gpu
