#include "base/locks.hpp"

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace zerohop::held_locks {
namespace {

struct Held {
  Rank rank;
  const char* name;
};

constexpr std::size_t kMost = 32;  // locks held by one thread

struct Locks {
  std::array<Held, kMost> held;
  std::size_t count = 0;
};

constinit thread_local Locks locks{};

// "poller", from the signature.
std::string_view word_of(std::string_view name) {
  constexpr std::string_view kBefore = "rank = zerohop::Rank::";
  const auto at = name.find(kBefore);
  if (at == std::string_view::npos) return name;
  name.remove_prefix(at + kBefore.size());
  return name.substr(0, name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"));
}

[[noreturn]] void end(const char* taken, const char* held) {
  const std::string_view inner = word_of(taken);
  const std::string_view outer = word_of(held);
  std::fprintf(stderr,
               "lock order: %.*s is locked with %.*s held; take them in the order of "
               "base/lock_order.hpp, or correct that\n",
               static_cast<int>(inner.size()), inner.data(), static_cast<int>(outer.size()),
               outer.data());
  std::abort();
}

}  // namespace

void await(Rank rank, const char* name) noexcept {
  for (std::size_t i = 0; i < locks.count; ++i) {
    if (locks.held[i].rank >= rank) end(name, locks.held[i].name);
  }
  add(rank, name);
}

// Recursive shared locking: glibc's rwlocks prefer readers, so a waiting writer does not block it.
void await_shared(Rank rank, const char* name) noexcept {
  for (std::size_t i = 0; i < locks.count; ++i) {
    if (locks.held[i].rank > rank) end(name, locks.held[i].name);
  }
  add(rank, name);
}

void check_process(unsigned made_in, Rank rank, const char* name) noexcept {
  if (made_in == fork_generation() || rank == Rank::descriptors) return;  // held by fork(2) itself
  const std::string_view word = word_of(name);
  std::fprintf(stderr,
               "fork: %.*s of the parent is taken in a child, where it may stay locked for ever; "
               "use the parent's objects only in the parent\n",
               static_cast<int>(word.size()), word.data());
  std::abort();
}

void add(Rank rank, const char* name) noexcept {
  if (locks.count == kMost) end(name, "more locks than can be tracked");
  locks.held[locks.count++] = {rank, name};
}

void remove(Rank rank) noexcept {
  for (std::size_t i = locks.count; i-- > 0;) {
    if (locks.held[i].rank != rank) continue;
    for (--locks.count; i < locks.count; ++i) locks.held[i] = locks.held[i + 1];
    return;
  }
}

}  // namespace zerohop::held_locks
