#include "engine/wait/async_waits.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace zerohop::engine {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNever{1000};        // as long as the thread may sleep in any case
constexpr milliseconds kWhileSilent{1};     // kernels put values and wake no thread
constexpr milliseconds kWhileWritten{100};  // a GPU's value may become visible late

}  // namespace

template <typename Visit>
void AsyncWaits::visit_nodes(const Wait& wait, Visit&& visit) {
  if (wait.count == 0) return visit(kPeers);
  std::uint32_t begin = kLeaves + wait.first;
  std::uint32_t end = begin + wait.count;
  for (; begin < end; begin /= 2, end /= 2) {
    if (begin % 2 == 1) visit(begin++);
    if (end % 2 == 1) visit(--end);
  }
}

AsyncWaits::Begun AsyncWaits::await_slots(std::uint32_t first, std::uint32_t count, Tell tell) {
  const std::lock_guard lock(mutex_);
  const Begun begun = add({.first = first, .count = count, .tell = std::move(tell)});
  // After this thread is counted as a sleeper: a later put sees the sleeper, and the scan below
  // finds an earlier one.
  const std::uint64_t puts = board_->puts();
  if (for_slots_.load() == 1) seen_.store(puts);
  for (std::uint32_t slot = first; slot < first + count; ++slot) {
    if (!board_->may_have(slot)) continue;
    this->tell(begun.id);
    break;
  }
  return begun;
}

AsyncWaits::Begun AsyncWaits::await_peer(Tell tell) {
  const std::lock_guard lock(mutex_);
  return add({.tell = std::move(tell)});
}

AsyncWaits::Begun AsyncWaits::add(Wait&& wait) {
  const Id id = next_++;
  const Wait& added = waits_.emplace(id, std::move(wait)).first->second;
  const bool first = added.count > 0 && for_slots_.fetch_add(1) == 0;
  if (first) board_->sleepers().fetch_add(1);
  try {
    visit_nodes(added, [&](std::uint32_t node) { by_node_[node].insert(id); });
  } catch (...) {
    remove(id);
    throw;
  }
  return {.id = id, .first = first};
}

void AsyncWaits::forget(Id id) {
  const std::lock_guard lock(mutex_);
  if (waits_.contains(id)) remove(id);
}

void AsyncWaits::remove(Id id) {
  const auto found = waits_.find(id);
  visit_nodes(found->second, [&](std::uint32_t node) {
    const auto ids = by_node_.find(node);
    if (ids == by_node_.end()) return;  // add() ran out of memory for it
    ids->second.erase(id);
    if (ids->second.empty()) by_node_.erase(ids);
  });
  if (found->second.count > 0 && for_slots_.fetch_sub(1) == 1) board_->sleepers().fetch_sub(1);
  waits_.erase(found);
}

void AsyncWaits::tell(Id id) {
  waits_.at(id).tell();
  remove(id);
}

void AsyncWaits::tell_node(std::uint32_t node) {
  for (auto found = by_node_.find(node); found != by_node_.end(); found = by_node_.find(node)) {
    tell(*found->second.begin());
  }
}

void AsyncWaits::tell_slot(std::uint32_t slot) {
  if (!board_->may_have(slot)) return;  // already taken
  for (std::uint32_t node = kLeaves + slot; node > 0; node /= 2) tell_node(node);
}

// Scans all slots that are waited for.
void AsyncWaits::tell_filled() {
  for (auto next = waits_.begin(); next != waits_.end();) {
    const auto& [id, wait] = *next++;
    const std::uint32_t end = wait.first + wait.count;
    for (std::uint32_t slot = wait.first; slot < end; ++slot) {
      if (!board_->may_have(slot)) continue;
      tell(id);
      break;
    }
  }
}

void AsyncWaits::look() noexcept {
  if (for_slots_.load() == 0 || board_->puts() == seen_.load()) return;
  const std::lock_guard lock(mutex_);
  const std::uint64_t puts = board_->puts();
  const std::uint64_t seen = seen_.exchange(puts);
  if (puts - seen > BoardPages::kRecent) return tell_filled();
  for (std::uint64_t number = seen; number != puts; ++number) {
    const auto slot = board_->pages().slot_of(number);
    if (!slot) return tell_filled();
    tell_slot(*slot);
  }
}

void AsyncWaits::tell_peers() noexcept {
  const std::lock_guard lock(mutex_);
  tell_node(kPeers);
}

void AsyncWaits::tell_waits_for_slots() {
  for (auto next = waits_.begin(); next != waits_.end();) {
    const auto& [id, wait] = *next++;
    if (wait.count > 0) tell(id);
  }
}

void AsyncWaits::tell_slots() noexcept {
  const std::lock_guard lock(mutex_);
  tell_waits_for_slots();
}

void AsyncWaits::tell_all() noexcept {
  const std::lock_guard lock(mutex_);
  tell_waits_for_slots();
  tell_node(kPeers);
}

milliseconds AsyncWaits::look_for_gpus() noexcept {
  if (for_slots_.load() == 0) return kNever;
  const bool silent = board_->pages().kernels.load(std::memory_order_relaxed) != 0;
  if (!silent && board_->pages().writers.load(std::memory_order_relaxed) == 0) return kNever;
  const milliseconds pause = silent ? kWhileSilent : kWhileWritten;
  const auto now = std::chrono::steady_clock::now();
  if (now >= look_again_) {
    look_again_ = now + pause;
    const std::lock_guard lock(mutex_);
    tell_filled();
  }
  return std::min(pause, std::chrono::ceil<milliseconds>(look_again_ - now));
}

}  // namespace zerohop::engine
