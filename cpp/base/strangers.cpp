#include "base/strangers.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"

namespace zerohop {

std::size_t most_strangers(std::size_t wished) noexcept {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return wished;
  return std::clamp<std::size_t>(descriptors.rlim_cur / 4, 1, wished);
}

std::size_t any_of(std::size_t count) noexcept {
  try {
    return random_u32() % count;
  } catch (const Error&) {  // the kernel gives nothing: then the first
    return 0;
  }
}

}  // namespace zerohop
