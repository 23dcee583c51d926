#include "softhca/inherited.hpp"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace zerohop::softhca::inherited {
namespace {

// One bit a descriptor, without a lock: the child's handler must not wait for a thread that is
// gone. 128 KiB of zero pages, of which only those in use are ever touched. Descriptors beyond stay
// open in the child: their number is above every default limit of a process (1 048 576).
constexpr int kMost = 1 << 20;
std::array<std::atomic<std::uint64_t>, kMost / 64> open_descriptors;

void close_in_child() {
  for (int word = 0; word < kMost / 64; ++word) {
    std::uint64_t bits = open_descriptors[word].load(std::memory_order_relaxed);
    if (bits == 0) continue;
    open_descriptors[word].store(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) ::close(word * 64 + std::countr_zero(bits));
  }
}

[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, close_in_child);

std::uint64_t bit(int fd) { return std::uint64_t{1} << (fd % 64); }

}  // namespace

void track(int fd) noexcept {
  if (fd < 0 || fd >= kMost) return;
  open_descriptors[fd / 64].fetch_or(bit(fd), std::memory_order_relaxed);
}

void untrack(int fd) noexcept {
  if (fd < 0 || fd >= kMost) return;
  open_descriptors[fd / 64].fetch_and(~bit(fd), std::memory_order_relaxed);
}

}  // namespace zerohop::softhca::inherited
