#include "base/strangers.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace zerohop {

std::size_t most_strangers(std::size_t wished) noexcept {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return wished;
  return std::clamp<std::size_t>(descriptors.rlim_cur / 4, 1, wished);
}

}  // namespace zerohop
