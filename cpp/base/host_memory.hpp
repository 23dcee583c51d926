// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace zerohop {

// Bytes that can be allocated without evicting anything: MemAvailable of /proc/meminfo, or what
// this process's control group (v2) and its ancestors still allow, if that is less. The largest
// number when the kernel gives no value. root: where /proc and /sys are.
std::uint64_t available_memory(const std::string& root = "");

}  // namespace zerohop
