// Unguessable bytes from the kernel: secrets, queue pair numbers, packet sequence numbers, keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zerohop {

// Fills `bytes` from getrandom(2). Throws Error when the kernel refuses (never seen on Linux
// >= 3.17).
void fill_random(std::span<std::byte> bytes);

// One random 32-bit word, from a per-thread pool that is refilled from getrandom(2).
std::uint32_t random_u32();

}  // namespace zerohop
