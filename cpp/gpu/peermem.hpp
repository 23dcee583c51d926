// The kernel module that lets adapters register GPU memory by address.
#pragma once

#include <filesystem>
#include <string>

namespace zerohop::gpu {

// The name of the loaded module ("nvidia_peermem", or one of its predecessors), empty when there is
// none. `sys` is the sysfs mount point.
std::string find_peermem(const std::filesystem::path& sys = "/sys");

}  // namespace zerohop::gpu
