// The epoll set of one device context.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

#include "base/unique_fd.hpp"

namespace zerohop::softhca {

// Something whose descriptor is watched.
class Watched {
 public:
  // `ready` holds EPOLL* bits. Called with Context::control held.
  virtual void on_ready(std::uint32_t ready) noexcept = 0;

 protected:
  ~Watched() = default;
};

class Poller {
 public:
  Poller();  // throws Error
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Level-triggered. False with errno set when the kernel refuses (out of memory or watches).
  bool add(int fd, std::uint32_t wanted, Watched& watched) noexcept;
  void change(int fd, std::uint32_t wanted, Watched& watched) noexcept;
  void remove(int fd) noexcept;  // before close: a forked child may keep the description open

  // Blocks until something is ready; what it is stays to be found by dispatch().
  // timeout in milliseconds; -1: for ever.
  void wait(int timeout_ms) noexcept;

  // Calls on_ready of what is ready now; how many that were.
  int dispatch() noexcept;

  // Counts the calls of dispatch(). An object that was closed in one call may still be named by an
  // event of the same call, so it is destroyed in a later one.
  std::uint64_t round() const noexcept { return round_; }

 private:
  std::uint64_t round_ = 0;  // guarded by Context::control, as dispatch() is
  UniqueFd fd_;
};

}  // namespace zerohop::softhca
