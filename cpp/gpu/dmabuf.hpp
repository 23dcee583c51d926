// GPU memory as a dma-buf: a file descriptor through which another device's driver accesses it.
#pragma once

#include <cstdint>

#include "base/layout.hpp"
#include "base/unique_fd.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

struct Dmabuf {
  UniqueFd fd;               // may be closed after registration, which holds the memory
  std::uint64_t offset = 0;  // of the range's first byte in the dma-buf
};

// How the other device accesses the memory, where the platform has more than one path. pcie:
// bypasses the CPU's coherent link, for adapters with Data Direct only; needs driver 12.8.
enum class DmabufMapping { usual, pcie };

// Exports the host pages that `range` touches; it may span several mapped chunks. Throws CudaError:
// 801 where the memory, the GPU or the mapping is not supported, 1 where part of the range is
// unmapped or its chunks differ in their properties.
Dmabuf export_dmabuf(const Device& device, const Extent& range,
                     DmabufMapping mapping = DmabufMapping::usual);

}  // namespace zerohop::gpu
