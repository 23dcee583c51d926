#include "base/bell.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/error.hpp"
#include "base/scarcity.hpp"

namespace zerohop {

Bell::Bell() : fd_(UniqueFd::open([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {
  if (fd_) return;
  throw_scarce("eventfd failed", errno);
}

void Bell::ring() noexcept {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the descriptor is readable already.
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

void Bell::silence() noexcept {
  std::uint64_t rings;
  [[maybe_unused]] const ssize_t taken = ::read(fd_.get(), &rings, sizeof rings);
}

}  // namespace zerohop
