#include "base/unique_fd.hpp"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdint>

#include "base/locks.hpp"

namespace zerohop {
namespace {

// One bit per descriptor: 128 KiB of zero pages, of which only those in use are ever touched.
// Higher descriptors stay open in the child; they exceed every default limit of a process (1 048
// 576).
constexpr int kMost = 1 << 20;
std::array<std::uint64_t, kMost / 64> owned;  // guarded by `opening`

// Held across fork(2), so that in the child each descriptor is either owned or not yet open.
Mutex<Rank::descriptors> opening;

void before_fork() { opening.lock(); }

void in_parent() { opening.unlock(); }

void in_child() {
  for (int word = 0; word < kMost / 64; ++word) {
    std::uint64_t bits = owned[word];
    if (bits == 0) continue;  // a write would allocate the page
    owned[word] = 0;
    for (; bits != 0; bits &= bits - 1) ::close(word * 64 + std::countr_zero(bits));
  }
  opening.unlock();
}

[[maybe_unused]] const int fork_registered = ::pthread_atfork(before_fork, in_parent, in_child);

bool is_tracked(int fd) { return fd >= 0 && fd < kMost; }

std::uint64_t bit(int fd) { return std::uint64_t{1} << (fd % 64); }

}  // namespace

UniqueFd::UniqueFd(int fd) noexcept {
  const std::lock_guard guard(opening);
  own(fd);
}

Mutex<Rank::descriptors>& UniqueFd::no_fork() noexcept { return opening; }

void UniqueFd::own(int fd) noexcept {
  fd_ = fd;
  generation_ = fork_generation();
  if (is_tracked(fd)) owned[fd / 64] |= bit(fd);
}

int UniqueFd::disown() noexcept {
  const bool here = generation_ == fork_generation();
  const int fd = std::exchange(fd_, -1);
  if (!here) return -1;
  if (is_tracked(fd)) owned[fd / 64] &= ~bit(fd);
  return fd;
}

int UniqueFd::release() noexcept {
  if (fd_ < 0) return -1;
  const std::lock_guard guard(opening);
  return disown();
}

void UniqueFd::reset() noexcept {
  if (fd_ < 0) return;
  const std::lock_guard guard(opening);
  const int fd = disown();
  // Not retried on EINTR: Linux has already released the descriptor (man 2 close).
  if (fd >= 0) ::close(fd);
}

}  // namespace zerohop
