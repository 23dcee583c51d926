#include "softhca/poller.hpp"

#include <cerrno>

#include "base/error.hpp"
#include "softhca/inherited.hpp"

namespace zerohop::softhca {
namespace {

constexpr int kBatch = 64;

}  // namespace

Poller::Poller() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!fd_) throw Error(errno_message("epoll_create1 failed", errno), errno);
  inherited::track(fd_.get());
}

Poller::~Poller() { inherited::close(fd_); }

bool Poller::add(int fd, std::uint32_t wanted, Watched& watched) noexcept {
  epoll_event event{.events = wanted, .data = {.ptr = &watched}};
  return ::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Poller::change(int fd, std::uint32_t wanted, Watched& watched) noexcept {
  epoll_event event{.events = wanted, .data = {.ptr = &watched}};
  ::epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Poller::remove(int fd) noexcept { ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void Poller::wait(int timeout_ms) noexcept {
  epoll_event event;
  ::epoll_wait(fd_.get(), &event, 1, timeout_ms);
}

int Poller::dispatch() noexcept {
  ++round_;
  epoll_event ready[kBatch];
  const int count = ::epoll_wait(fd_.get(), ready, kBatch, 0);
  for (int i = 0; i < count; ++i) {
    static_cast<Watched*>(ready[i].data.ptr)->on_ready(ready[i].events);
  }
  return count;
}

}  // namespace zerohop::softhca
