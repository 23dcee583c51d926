// On which NUMA node memory of the host lies.
#pragma once

#include <cstdint>

namespace zerohop {

// Of the page at that address, which what is registered with an adapter has; -1 where the kernel
// does not tell (containers may forbid the question).
int numa_node_of(std::uint64_t address) noexcept;

}  // namespace zerohop
