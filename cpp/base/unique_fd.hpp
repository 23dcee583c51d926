// The one owner of a file descriptor.
//
// A child made by fork(2) keeps none of them: while any process holds a socket open, its peer does
// not learn that the owner died. The child closes them all before any other code runs in it.
#pragma once

#include <mutex>
#include <utility>

#include "base/fork.hpp"
#include "base/locks.hpp"

namespace zerohop {

class UniqueFd {
 public:
  UniqueFd() = default;
  // Owns an existing descriptor, or none (-1).
  explicit UniqueFd(int fd) noexcept;
  // Owns what `make()` opens, or nothing if that returns -1 and sets errno. fork() waits for it, so
  // `make` must be one short system call.
  template <typename Make>
  static UniqueFd open(Make make) {
    const std::lock_guard guard(no_fork());
    UniqueFd made;
    made.own(make());
    return made;
  }
  UniqueFd(UniqueFd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(generation_, other.generation_);
    other.reset();
    return *this;
  }
  ~UniqueFd() { reset(); }

  // -1 in a child: the number may belong to another file there.
  int get() const noexcept { return generation_ == fork_generation() ? fd_ : -1; }
  explicit operator bool() const noexcept { return get() >= 0; }
  int release() noexcept;
  void reset() noexcept;

 private:
  static Mutex<Rank::descriptors>& no_fork() noexcept;  // leaf lock, held across fork(2)
  void own(int fd) noexcept;                            // call with no_fork() held
  int disown() noexcept;                                // likewise

  int fd_ = -1;
  unsigned generation_ = 0;  // of the owning process; a child's copy is already closed
};

}  // namespace zerohop
