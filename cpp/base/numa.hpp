// On which NUMA node memory of the host lies.
#pragma once

#include <cstdint>

namespace zerohop {

// Of the page at that address if it has one, else of the CPU that asks; -1 where the kernel does
// not tell. What was registered with an adapter has its pages.
int numa_node_of(std::uint64_t address) noexcept;

}  // namespace zerohop
