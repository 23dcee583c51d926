// What the driver says about a GPU that matters for adapters: a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "driver/cuda_constants.hpp"

namespace zerohop::gpu {

struct DeviceFacts {
  int ordinal = 0;
  std::string name;            // "NVIDIA H200"
  std::string pci;             // "0000:00:06.0", lower case as in sysfs
  int compute = 0;             // capability, 10 * major + minor
  int driver = 0;              // CUDA version of the driver, 1000 * major + 10 * minor
  bool gpudirect = false;      // adapters may access its memory at all
  bool gpudirect_vmm = false;  // ... memory of cuMemCreate too, if allocated for it
  bool vmm = false;            // maps physical memory at chosen addresses (cuMemCreate)
  bool fd_export = false;      // ... and exports it as file descriptors
  bool dmabuf = false;         // exports memory as dma-buf: needs the open kernel modules
  bool flush_by_host = false;  // cuFlushGPUDirectRDMAWrites works
  bool flush_by_stream = false;
  bool reaches_registered = false;               // host memory registered later, at its own address
  int writes_ordering = driver::kCudaScopeNone;  // who sees GPUDirect writes without a flush
  std::optional<std::uint64_t> bar1_nbytes;      // BAR1 size; empty: unknown

  std::string device_name() const { return "cuda:" + std::to_string(ordinal); }
};

// Throw CudaError. `device` is the handle of `ordinal`.
DeviceFacts ask_device(const driver::Cuda& cuda, driver::CudaDevice device, int ordinal);
// Lower case, as in sysfs.
std::string pci_address(const driver::Cuda& cuda, driver::CudaDevice device);

// The size of the largest BAR in the text of the PCI device's sysfs file "resource": BAR1 of an
// NVIDIA GPU. Empty when the text has none.
std::optional<std::uint64_t> largest_window(const std::string& resource);

}  // namespace zerohop::gpu
