#include "event_file.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace zerohop::mlx5sim {

EventFile::EventFile()
    : shown_(UniqueFd::open([this] { return ::fcntl(counter_.fd(), F_DUPFD_CLOEXEC, 0); })) {
  if (!shown_) throw Error(errno_message("fcntl failed", errno), errno);
}

void EventFile::push(const Queued& event) {
  const std::lock_guard guard(mutex_);
  queued_.push_back(event);
  counter_.add();
}

std::ptrdiff_t EventFile::read(void* to, std::size_t nbytes) noexcept {
  for (;;) {
    if (const int error = counter_.take(); error != 0) {
      errno = error;
      return -1;
    }
    const std::lock_guard guard(mutex_);
    if (queued_.empty()) continue;  // withdrawn between the read and the lock
    const Queued event = queued_.front();
    if (nbytes < event.nbytes) {
      counter_.add();
      errno = EINVAL;
      return -1;
    }
    queued_.pop_front();
    if (event.source != nullptr) ++event.source->delivered;
    std::memcpy(to, event.bytes.data(), event.nbytes);
    return static_cast<std::ptrdiff_t>(event.nbytes);
  }
}

std::uint32_t EventFile::forget(EventSource& source) noexcept {
  const std::lock_guard guard(mutex_);
  const auto withdrawn =
      std::erase_if(queued_, [&](const Queued& each) { return each.source == &source; });
  for (std::size_t i = 0; i < withdrawn; ++i) counter_.withdraw();
  return source.delivered;
}

}  // namespace zerohop::mlx5sim
