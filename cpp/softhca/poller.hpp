// The epoll set of one device context.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <chrono>
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
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Level-triggered. False with errno set when the kernel refuses (out of memory or watches).
  bool add(int fd, std::uint32_t wanted, Watched& watched) noexcept;
  void change(int fd, std::uint32_t wanted, Watched& watched) noexcept;
  void remove(int fd) noexcept;  // before close: a forked child may keep the description open

  // What epoll found, to be dispatched at once or later.
  struct Batch {
    std::array<epoll_event, 64> ready;  // the first `count` are set
    int count = 0;
    std::uint64_t removals = 0;
  };

  // Blocks until something is ready.
  void wait(Batch& batch) noexcept;

  // Blocks until something is ready, or for `most`.
  void wait(Batch& batch, std::chrono::microseconds most) noexcept;

  // Finds what is ready now.
  void look(Batch& batch) noexcept;

  // Calls on_ready of what is in the batch; how many that were. Nothing when anything was removed
  // since the batch was filled: it may name what is gone, and what remains ready will be found
  // again.
  int dispatch(const Batch& batch) noexcept;

  // Counts the calls of dispatch(). An object that was closed in one call may still be named by an
  // event of the same call, so it is destroyed in a later one.
  std::uint64_t round() const noexcept { return round_; }

 private:
  void fill(Batch& batch, int timeout_ms) noexcept;

  std::atomic<std::uint64_t> removals_{0};
  std::uint64_t round_ = 0;  // guarded by Context::control, as dispatch() is
  UniqueFd fd_;
};

}  // namespace zerohop::softhca
