#include "base/random.hpp"

#include <sys/random.h>

#include <array>
#include <cerrno>

#include "base/error.hpp"
#include "base/fork.hpp"

namespace zerohop {

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(errno_message("getrandom failed", errno), errno);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

std::uint32_t random_u32() {
  // One system call per 64 words keeps registration of many small regions cheap.
  thread_local std::array<std::uint32_t, 64> pool;
  thread_local std::size_t left = 0;
  thread_local unsigned filled_in = 0;
  // A forked child must not return the words that its parent will also return.
  if (left == 0 || filled_in != fork_generation()) {
    fill_random(std::as_writable_bytes(std::span(pool)));
    left = pool.size();
    filled_in = fork_generation();
  }
  return pool[--left];
}

}  // namespace zerohop
