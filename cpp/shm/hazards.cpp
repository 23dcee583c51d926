#include "shm/hazards.hpp"

#include <algorithm>

#include "base/deadline.hpp"
#include "base/spin_wait.hpp"

namespace zerohop::shm {
namespace {

// One copy takes milliseconds. A longer wait means that the other side corrupted the pages.
constexpr Deadline::Seconds kPatience{1};

// The line that this thread tries first: its own, while there are no more threads than lines.
std::size_t own_line() noexcept {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t line = threads.fetch_add(1, std::memory_order_relaxed);
  return line;
}

}  // namespace

bool Hazards::claimed(std::uint32_t slot) const noexcept {
  if (held(slot)) return true;
  return std::ranges::any_of(lines_,
                             [=](const Line& line) { return line.claimed.load() == slot + 1; });
}

bool Hazards::claimed() const noexcept {
  return held() || std::ranges::any_of(lines_, [](const Line& line) { return line.claimed != 0; });
}

bool Hazards::held() const noexcept {
  return std::ranges::any_of(held_, [](const auto& word) { return word.load() != 0; });
}

std::atomic<std::uint32_t>* Hazards::take(std::uint32_t slot, Patience patience) noexcept {
  const auto try_all = [&]() -> std::atomic<std::uint32_t>* {
    const std::size_t own = own_line();
    for (std::size_t i = 0; i < kClaims; ++i) {
      std::atomic<std::uint32_t>& word = lines_[(own + i) % kClaims].claimed;
      std::uint32_t nobody = 0;
      if (word.load(std::memory_order_relaxed) == 0 &&
          word.compare_exchange_strong(nobody, slot + 1)) {
        return &word;
      }
    }
    return nullptr;
  };
  if (auto* const word = try_all()) return word;
  if (patience == Patience::none) return nullptr;
  SpinWait wait;
  for (const Deadline until = Deadline::after(kPatience); !until.passed(); wait.pause()) {
    if (auto* const word = try_all()) return word;
  }
  return nullptr;
}

}  // namespace zerohop::shm
