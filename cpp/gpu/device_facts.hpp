// What the driver says of a GPU, as far as adapters are concerned: a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "driver/cuda_constants.hpp"

namespace zerohop::gpu {

struct DeviceFacts {
  int ordinal = 0;
  std::string name;            // "NVIDIA H200"
  std::string pci;             // "0000:00:06.0", in lower case as sysfs has it
  int compute = 0;             // capability, 10 * major + minor
  int driver = 0;              // CUDA version of the driver, 1000 * major + 10 * minor
  bool gpudirect = false;      // adapters may reach its memory at all
  bool gpudirect_vmm = false;  // ... memory of cuMemCreate too, where that asks for it
  bool vmm = false;            // maps physical memory where it is told (cuMemCreate)
  bool fd_export = false;      // ... and hands it out as file descriptors
  bool dmabuf = false;         // exports memory as dma-buf: needs the open kernel modules
  bool flush_by_host = false;  // cuFlushGPUDirectRDMAWrites works
  bool flush_by_stream = false;
  bool reaches_registered = false;  // host memory that is registered later, at its own address
  int writes_ordering = driver::kCudaScopeNone;  // who sees GPUDirect writes without a flush
  std::optional<std::uint64_t> bar1_nbytes;      // the window adapters see; empty: not known

  std::string device_name() const { return "cuda:" + std::to_string(ordinal); }
};

// Throw CudaError. `device` is the handle of `ordinal`.
DeviceFacts ask_device(const driver::Cuda& cuda, driver::CudaDevice device, int ordinal);
// In lower case, as sysfs has it.
std::string pci_address(const driver::Cuda& cuda, driver::CudaDevice device);

// The largest of the PCI device's windows in the text of its sysfs file "resource": BAR1 of an
// NVIDIA GPU. Empty when the text has none.
std::optional<std::uint64_t> largest_window(const std::string& resource);

}  // namespace zerohop::gpu
