// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace zerohop {

// Bytes that new allocations may take without pushing anything out: MemAvailable of /proc/meminfo,
// or what the process's control group (v2) and those above it leave, if that is less. The largest
// number when the kernel does not tell. root: where /proc and /sys are.
std::uint64_t available_memory(const std::string& root = "");

}  // namespace zerohop
