// How much memory this process may still take, and whether pages are memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace zerohop {

// Bytes that can be allocated without evicting anything: MemAvailable of /proc/meminfo, or what
// this process's control group (v2) and its ancestors still allow, if that is less. The largest
// number when the kernel gives no value. root: where /proc and /sys are.
std::uint64_t available_memory(const std::string& root = "");

// Takes the memory of those whole pages as if they were written. False where none may be written,
// where they are a device's instead of memory, and before Linux 5.14.
bool populate(void* begin, std::size_t nbytes) noexcept;

}  // namespace zerohop
