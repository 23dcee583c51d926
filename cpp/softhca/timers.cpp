#include "softhca/timers.hpp"

#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"

namespace zerohop::softhca {

Timers::Timers(Epoll& poller)
    : poller_(poller), fd_(UniqueFd::open([] {
        return ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
      })) {
  if (!fd_ || !poller_.add(fd_.get(), EPOLLIN, *this)) {
    throw Error(errno_message("timerfd failed", errno), errno);
  }
}

Timers::~Timers() { poller_.remove(fd_.get()); }

void Timers::set(Timed& timed, Clock::time_point due) noexcept {
  std::lock_guard guard(mutex_);
  if (!timed.link.queued) {
    timed.link.queued = true;
    timed.link.previous = nullptr;
    timed.link.next = first_;
    if (first_ != nullptr) first_->link.previous = &timed;
    first_ = &timed;
  }
  timed.link.due = due;
  if (due < programmed_) program(due);
}

void Timers::cancel(Timed& timed) noexcept {
  std::lock_guard guard(mutex_);
  unlink(timed);  // the timerfd may now fire once too often
}

void Timers::unlink(Timed& timed) noexcept {
  if (!timed.link.queued) return;
  timed.link.queued = false;
  (timed.link.previous != nullptr ? timed.link.previous->link.next : first_) = timed.link.next;
  if (timed.link.next != nullptr) timed.link.next->link.previous = timed.link.previous;
}

void Timers::program(Clock::time_point due) noexcept {
  programmed_ = due;
  const auto since_epoch = std::chrono::nanoseconds(due.time_since_epoch()).count();
  // An all-zero value would disarm the timer; the clock itself never reads 0 again.
  const auto at = std::max<std::int64_t>(since_epoch, 1);
  itimerspec spec{};
  spec.it_value.tv_sec = at / 1'000'000'000;
  spec.it_value.tv_nsec = at % 1'000'000'000;
  ::timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

Timed* Timers::take_due(Clock::time_point now) noexcept {
  std::lock_guard guard(mutex_);
  auto earliest = Clock::time_point::max();
  for (Timed* at = first_; at != nullptr; at = at->link.next) {
    if (at->link.due <= now) {
      unlink(*at);
      return at;
    }
    earliest = std::min(earliest, at->link.due);
  }
  programmed_ = Clock::time_point::max();
  if (earliest != Clock::time_point::max()) program(earliest);
  return nullptr;
}

void Timers::on_ready(std::uint32_t) noexcept {
  std::uint64_t expirations;
  [[maybe_unused]] const ssize_t nbytes = ::read(fd_.get(), &expirations, sizeof expirations);
  const auto now = Clock::now();
  while (Timed* timed = take_due(now)) timed->on_time();
}

}  // namespace zerohop::softhca
