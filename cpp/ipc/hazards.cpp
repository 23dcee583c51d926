#include "ipc/hazards.hpp"

#include <thread>

namespace zerohop::ipc {
namespace {

// Where this thread looks first: its own line, as long as there are no more threads than lines.
std::size_t own_line() noexcept {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t line = threads.fetch_add(1, std::memory_order_relaxed);
  return line;
}

}  // namespace

std::atomic<std::uint32_t>& Hazards::take(std::uint32_t slot) noexcept {
  for (std::size_t at = own_line();; ++at) {
    std::atomic<std::uint32_t>& word = lines_[at % kClaims].claimed;
    std::uint32_t nobody = 0;
    if (word.load(std::memory_order_relaxed) == 0 && word.compare_exchange_strong(nobody, slot + 1))
      return word;
    if (at % kClaims == kClaims - 1) std::this_thread::yield();
  }
}

}  // namespace zerohop::ipc
