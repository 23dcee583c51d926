#include "softhca/event_counter.hpp"

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/error.hpp"

namespace zerohop::softhca {

EventCounter::EventCounter()
    : fd_(UniqueFd::open([] { return ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC); })) {
  if (!fd_) throw Error(errno_message("eventfd failed", errno), errno);
}

void EventCounter::add() noexcept {
  const std::uint64_t one = 1;
  // Cannot fail: the count would have to reach 2^64.
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

int EventCounter::take() noexcept {
  std::uint64_t one;
  return ::read(fd_.get(), &one, sizeof one) < 0 ? errno : 0;
}

void EventCounter::withdraw() noexcept {
  std::uint64_t one;
  iovec into{&one, sizeof one};
  [[maybe_unused]] const ssize_t taken = ::preadv2(fd_.get(), &into, 1, -1, RWF_NOWAIT);
}

}  // namespace zerohop::softhca
