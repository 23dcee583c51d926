// Whether a device and remote memory allow atomics.
#pragma once

#include "engine/remote_memory.hpp"
#include "rdma/device.hpp"

namespace zerohop::engine {

// Throws std::invalid_argument when the holder may not write the memory, and RouteUnavailable when
// the own device or the one that the memory is registered with has no atomics.
void check_atomics(const rdma::Device& own, const RemoteMemory& word);

}  // namespace zerohop::engine
