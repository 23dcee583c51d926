// How a GPU of this process stands to the one that memory of another process lies on.
#pragma once

#include <string>

#include "gpu/device.hpp"

namespace zerohop::gpu {

struct PeerLink {
  // unseen: it is not among the GPUs of this process (CUDA_VISIBLE_DEVICES).
  enum class Kind { same, seen, unseen } kind = Kind::unseen;
  int ordinal = -1;  // of the other GPU, in this process
  std::string pci;   // of the other GPU, as sysfs has it; empty: unseen
};

// Opens no context on the other GPU. Throws CudaError.
PeerLink find_peer(const Device& device, const driver::CudaUuid& other);

// Whether atomics of `device` on memory of another GPU are atomic with that one's own. Throws
// CudaError.
bool has_native_atomics(const Device& device, driver::CudaDevice owner);
bool has_native_atomics(const Device& device, const PeerLink& link);

// Why `device` cannot reach the memory of that GPU; empty where the driver knows of no reason.
std::string why_out_of_reach(const Device& device, const PeerLink& link);

}  // namespace zerohop::gpu
