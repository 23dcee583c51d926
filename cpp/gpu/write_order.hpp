// When a GPU sees what an adapter has written to its memory (GPUDirect writes).
//
// The completion of a write tells the host that the bytes left the adapter, not that a kernel which
// runs already reads them: they may still be on their way behind the PCIe bus. Work launched after
// the host has seen the completion always sees them.
#pragma once

#include "gpu/device.hpp"

namespace zerohop::gpu {

// What must happen between the completion and the moment a running kernel, or a stream that waits
// for a flag, is told of it.
enum class WriteOrder {
  kept,   // nothing: the GPU orders the writes itself
  flush,  // flush_writes()
  read,   // a read of the last byte by the same adapter: the driver offers no flush
};

// separate_paths: the writes come over more than one hardware path (mlx5 Data Direct beside the
// usual one, or several adapters). The driver orders no path with another and its flush does
// nothing then, so only a read over each path is left.
WriteOrder write_order(const DeviceFacts& facts, bool separate_paths) noexcept;

// Returns when all that adapters had written to the device's memory is visible to its kernels.
// Throws CudaError.
void flush_writes(const Device& device);

}  // namespace zerohop::gpu
