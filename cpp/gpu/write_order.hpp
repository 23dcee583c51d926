// When a GPU sees what an adapter wrote to its memory (GPUDirect writes).
//
// A write's completion means that the bytes left the adapter, not that a running kernel can read
// them: they may still be in flight on the PCIe bus. Work launched after the host has seen the
// completion always sees them.
#pragma once

#include "gpu/device.hpp"

namespace zerohop::gpu {

// What must happen after the completion, before a running kernel, or a stream that waits for a
// flag, may be notified.
enum class WriteOrder {
  kept,   // nothing: the GPU orders the writes
  flush,  // flush_writes()
  read,   // a read of the last byte by the same adapter: the driver offers no flush
};

// separate_paths: the writes arrive over more than one hardware path (mlx5 Data Direct beside the
// usual one, or several adapters). The driver does not order paths with each other and its flush
// does nothing then, so only a read over each path helps.
WriteOrder write_order(const DeviceFacts& facts, bool separate_paths) noexcept;

// Returns when all earlier adapter writes to the device's memory are visible to its kernels.
// Throws CudaError.
void flush_writes(const Device& device);

}  // namespace zerohop::gpu
