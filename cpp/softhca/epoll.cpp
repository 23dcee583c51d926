#include "softhca/epoll.hpp"

#include <poll.h>

#include <cerrno>

#include "base/error.hpp"

namespace zerohop::softhca {
Epoll::Epoll() : fd_(UniqueFd::open([] { return ::epoll_create1(EPOLL_CLOEXEC); })) {
  if (!fd_) throw Error(errno_message("epoll_create1 failed", errno), errno);
}

bool Epoll::add(int fd, std::uint32_t wanted, Watched& watched) noexcept {
  epoll_event event{.events = wanted, .data = {.ptr = &watched}};
  return ::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Epoll::change(int fd, std::uint32_t wanted, Watched& watched) noexcept {
  epoll_event event{.events = wanted, .data = {.ptr = &watched}};
  ::epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Epoll::remove(int fd) noexcept {
  ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
  removals_.fetch_add(1);
}

void Epoll::fill(Batch& batch, int timeout_ms) noexcept {
  batch.removals = removals_.load();
  batch.count =
      ::epoll_wait(fd_.get(), batch.ready.data(), static_cast<int>(batch.ready.size()), timeout_ms);
}

void Epoll::wait(Batch& batch) noexcept { fill(batch, -1); }

void Epoll::wait(Batch& batch, std::chrono::microseconds most) noexcept {
  // epoll_wait(2) counts in milliseconds.
  pollfd watched{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  const timespec limit{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(most).count()};
  batch.count = 0;
  if (::ppoll(&watched, 1, &limit, nullptr) > 0) look(batch);
}

void Epoll::look(Batch& batch) noexcept { fill(batch, 0); }

int Epoll::dispatch(const Batch& batch) noexcept {
  ++round_;
  if (batch.removals != removals_.load()) return 0;
  for (int i = 0; i < batch.count; ++i) {
    static_cast<Watched*>(batch.ready[i].data.ptr)->on_ready(batch.ready[i].events);
  }
  return batch.count;
}

}  // namespace zerohop::softhca
