// The epoll set of one device context.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/unique_fd.hpp"

namespace zerohop::softhca {

// An object whose descriptor is watched.
class Watched {
 public:
  // `ready` holds EPOLL* bits. Called with Context::control held.
  virtual void on_ready(std::uint32_t ready) noexcept = 0;

 protected:
  ~Watched() = default;
};

class Epoll {
 public:
  Epoll();  // throws Error
  Epoll(const Epoll&) = delete;
  Epoll& operator=(const Epoll&) = delete;

  // Level-triggered. False with errno set if the kernel refuses (out of memory or watches).
  bool add(int fd, std::uint32_t wanted, Watched& watched) noexcept;
  void change(int fd, std::uint32_t wanted, Watched& watched) noexcept;
  void remove(int fd) noexcept;  // before close: a forked child may keep the description open

  // Events from epoll, to be dispatched at once or later.
  struct Batch {
    std::array<epoll_event, 64> ready;  // the first `count` are set
    int count = 0;
    std::uint64_t removals = 0;
  };

  // Blocks until something is ready.
  void wait(Batch& batch) noexcept;

  // Blocks until something is ready, for at most `most`.
  void wait(Batch& batch, std::chrono::microseconds most) noexcept;

  // Fetches what is ready now, without blocking.
  void look(Batch& batch) noexcept;

  // Calls on_ready of the objects in the batch and returns their number. Does nothing if any object
  // was removed since the batch was filled: the batch may name it, and objects still ready will be
  // found again.
  int dispatch(const Batch& batch) noexcept;

  // Counts the calls of dispatch(). A later event of the same call may still name an object that
  // was closed in it, so the object is destroyed in a later call.
  std::uint64_t round() const noexcept { return round_; }

 private:
  void fill(Batch& batch, int timeout_ms) noexcept;

  std::atomic<std::uint64_t> removals_{0};
  std::uint64_t round_ = 0;  // guarded by Context::control, like dispatch()
  UniqueFd fd_;
};

}  // namespace zerohop::softhca
