// How a GPU of this process relates to the GPU that holds another process's memory.
#pragma once

#include <string>

#include "gpu/device.hpp"

namespace zerohop::gpu {

struct PeerLink {
  // unseen: this process cannot see the GPU (CUDA_VISIBLE_DEVICES).
  enum class Kind { same, seen, unseen } kind = Kind::unseen;
  int ordinal = -1;  // the other GPU's, in this process
  std::string pci;   // the other GPU's, as in sysfs; empty: unseen
};

// Opens no context on the other GPU. Throws CudaError.
PeerLink find_peer(const Device& device, const driver::CudaUuid& other);

// Whether atomics of `device` on memory of another GPU are atomic with that GPU's own. Throws
// CudaError.
bool has_native_atomics(const Device& device, driver::CudaDevice owner);
bool has_native_atomics(const Device& device, const PeerLink& link);

// Why `device` cannot access memory of that GPU; empty where the driver reports no obstacle.
std::string why_out_of_reach(const Device& device, const PeerLink& link);

}  // namespace zerohop::gpu
