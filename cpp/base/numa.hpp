// The NUMA node of host memory.
#pragma once

#include <cstdint>

namespace zerohop {

// Of the page at that address, which must be resident, as registered memory is; -1 where the kernel
// does not say (containers may forbid the call).
int numa_node_of(std::uint64_t address) noexcept;

}  // namespace zerohop
