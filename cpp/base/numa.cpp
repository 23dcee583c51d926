#include "base/numa.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace zerohop {

int numa_node_of(std::uint64_t address) noexcept {
  int node = -1;
  constexpr unsigned long kOfPage = MPOL_F_NODE | MPOL_F_ADDR;  // man get_mempolicy
  if (::syscall(SYS_get_mempolicy, &node, nullptr, 0UL, address, kOfPage) == 0) return node;
  return -1;
}

}  // namespace zerohop
