// The kernel module that lets adapters register GPU memory by its address.
#pragma once

#include <filesystem>
#include <string>

namespace zerohop::gpu {

// The name of the loaded module ("nvidia_peermem", or one of its predecessors), empty when none is.
// `sys` is where sysfs is mounted.
std::string find_peermem(const std::filesystem::path& sys = "/sys");

}  // namespace zerohop::gpu
