// What one GPU and one adapter can do together, found out by trying.
#pragma once

#include <memory>
#include <string>

#include "base/layout.hpp"
#include "engine/memory/registration_choice.hpp"
#include "gpu/device.hpp"
#include "rdma/memory_region.hpp"

namespace zerohop::engine {

// What the host says: asked once, and given by tests.
struct HostFacts {
  int kernel = 0;       // 1000 * major + minor
  std::string peermem;  // name of the loaded kernel module, empty: none
};
HostFacts ask_host();

// Where GPU memory is to be registered.
struct Adapter {
  std::shared_ptr<rdma::ProtectionDomain> domain;
  std::shared_ptr<const driver::Mlx5dv> mlx5dv;  // null unless libmlx5 drives the device
};

// Registers `range` of the device's memory as a dma-buf. Throws CudaError and RegistrationError.
std::shared_ptr<rdma::MemoryRegion> register_dmabuf(const Adapter& adapter,
                                                    const gpu::Device& device, const Extent& range,
                                                    int access, bool data_direct);

// What is known without a trial.
PairFacts ask_pair(const Adapter& adapter, const gpu::Device& device, const HostFacts& host);

// Registers the begin of `memory`, which is the device's and open to adapters, in each way that may
// work, for a moment: no memory is allocated, as a full GPU has none to give. Failures of a way are
// facts.
void probe_pair(const Adapter& adapter, const gpu::Device& device, const Extent& memory,
                PairFacts& facts);

}  // namespace zerohop::engine
