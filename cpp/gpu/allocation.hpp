// What the driver knows of an address: the allocation around it, its kind, and its identity.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/layout.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/memory_kind.hpp"

namespace zerohop::gpu {

// A plain value. For memory of cuMemCreate it is one mapped chunk; an array may lie across several.
struct Allocation {
  MemoryKind kind = MemoryKind::unknown;
  int ordinal = 0;                  // of the GPU it lies on, or was allocated through
  Extent extent;                    // of the chunk or allocation
  std::uint64_t buffer_id = 0;      // unique in the process: never used again for other memory
  bool gpudirect_capable = false;   // an adapter may reach it
  bool legacy_ipc_capable = false;  // cuIpcGetMemHandle works
  std::uint64_t handle_types = 0;   // shareable handles it may be exported as (bits)
  bool sync_memops = false;         // synchronous copies are ordered with what adapters write
};

// Kind `unknown` for an address that CUDA does not know. Throws CudaError. Needs no current
// context, only cuInit.
Allocation find_allocation(const driver::Cuda& cuda, std::uint64_t address);

// The identity of the memory under an address range: which chunk lies where.
struct Chunk {
  Extent extent;
  std::uint64_t buffer_id = 0;
  bool gpudirect_capable = false;  // no part of the identity: fixed when the chunk is made
  friend bool operator==(const Chunk& a, const Chunk& b) noexcept {
    return a.extent.begin == b.extent.begin && a.extent.end == b.extent.end &&
           a.buffer_id == b.buffer_id;
  }
};

// All chunks that `extent` lies across, in order; of the last one, the whole. Two equal answers
// mean that nothing in between was freed, unmapped or allocated anew. Takes one call of the driver
// for each chunk: it answers for one address at a time. Throws RegistrationError when part of the
// range is not mapped.
std::vector<Chunk> find_chunks(const driver::Cuda& cuda, const Extent& extent);

// Orders synchronous copies and memsets of the program with what adapters write to the allocation.
// False where the driver refuses: it knows no such attribute for memory of cuMemCreate.
bool set_sync_memops(const driver::Cuda& cuda, std::uint64_t address) noexcept;

}  // namespace zerohop::gpu
