// Finds out by trying what one GPU and one adapter can do together.
#pragma once

#include <memory>
#include <string>

#include "base/layout.hpp"
#include "engine/memory/registration_choice.hpp"
#include "gpu/device.hpp"
#include "rdma/memory_region.hpp"

namespace zerohop::engine {

// Facts about the host: queried once; tests supply their own.
struct HostFacts {
  int kernel = 0;       // 1000 * major + minor
  std::string peermem;  // name of the loaded kernel module, empty: none
};
HostFacts ask_host();

// The target of a GPU memory registration.
struct Adapter {
  std::shared_ptr<rdma::ProtectionDomain> domain;
  std::shared_ptr<const driver::Mlx5dv> mlx5dv;  // null unless libmlx5 drives the device
};

// Registers `range` of the device's memory as a dma-buf. Throws CudaError and RegistrationError.
std::shared_ptr<rdma::MemoryRegion> register_dmabuf(const Adapter& adapter,
                                                    const gpu::Device& device, const Extent& range,
                                                    int access, bool data_direct);

// The facts known without a trial.
PairFacts ask_pair(const Adapter& adapter, const gpu::Device& device, const HostFacts& host);

// Temporarily registers the start of `memory`, which belongs to the device and is open to adapters,
// in each way that may work. Allocates nothing, as a full GPU has no memory left. Failures become
// facts.
void probe_pair(const Adapter& adapter, const gpu::Device& device, const Extent& memory,
                PairFacts& facts);

}  // namespace zerohop::engine
