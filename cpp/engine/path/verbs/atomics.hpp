// Whether a device and remote memory allow atomics.
#pragma once

#include "engine/memory/remote_memory.hpp"
#include "engine/rail.hpp"

namespace zerohop::engine {

// Throws std::invalid_argument if the holder may not write the memory, and RouteUnavailable if the
// own device, or the one that registered the memory, has no atomics.
void check_atomics(const Rail& own, const RemoteMemory& word);

}  // namespace zerohop::engine
