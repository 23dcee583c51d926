// GPU memory as a dma-buf: a file descriptor through which another device's driver reaches it.
#pragma once

#include <cstdint>

#include "base/layout.hpp"
#include "base/unique_fd.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

struct Dmabuf {
  UniqueFd fd;               // may be closed once registered: the registration holds the memory
  std::uint64_t offset = 0;  // of the range's first byte in the dma-buf
};

// How the other device is to reach the memory, where the platform has more than one way. pcie: past
// the CPU's coherent link, for adapters with Data Direct only; drivers before 12.8 do not know it.
enum class DmabufMapping { usual, pcie };

// Exports the pages of the host that `range` touches; it may lie across several mapped chunks.
// Throws CudaError: 801 where the memory, the GPU or the mapping is not supported, 1 where part of
// the range is not mapped or its chunks differ in their properties.
Dmabuf export_dmabuf(const Device& device, const Extent& range,
                     DmabufMapping mapping = DmabufMapping::usual);

}  // namespace zerohop::gpu
