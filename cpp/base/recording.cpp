#include "base/recording.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "base/locks.hpp"

namespace zerohop::trace {
namespace {

struct Current {
  Mutex<Rank::recording> mutex;  // guards the pointer; held to copy it
  std::shared_ptr<Recording> recording;
};
// Replaced in a child of fork(), where the mutex may be locked for ever; the old one is leaked.
std::atomic<Current*> current{new Current};

}  // namespace

Event* Recording::claim() noexcept {
  const std::uint64_t index = next_.fetch_add(1, std::memory_order_relaxed);
  return index < events_.size() ? &events_[index] : nullptr;
}

std::size_t Recording::claimed() const noexcept {
  return std::min<std::uint64_t>(next_.load(), events_.size());
}

std::uint64_t Recording::dropped() const noexcept { return next_.load() - claimed(); }

std::uint64_t recording_clock() noexcept {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

std::shared_ptr<Recording> recording() noexcept {
  Current& here = *current.load();
  const std::lock_guard lock(here.mutex);
  return here.recording;
}

std::shared_ptr<Recording> set_recording(std::shared_ptr<Recording> next) noexcept {
  Current& here = *current.load();
  const std::lock_guard lock(here.mutex);
  detail::recording.store(next != nullptr);
  std::swap(here.recording, next);
  return next;
}

void forget_recording() {
  detail::recording.store(false);
  current.store(new Current);
}

void Entry::begin(const Facts& facts) noexcept {
  if (begun() || !records()) return;
  recording_ = recording();
  event_ = recording_ ? recording_->claim() : nullptr;
  if (event_ == nullptr) return recording_.reset();
  event_->what = facts.what;
  event_->nbytes = facts.nbytes;
  event_->peer.set(facts.peer);
  event_->route.set(facts.route);
  event_->device.set(facts.device);
  event_->begin = facts.begin != 0 ? facts.begin : recording_clock();
  event_->state.store(Event::State::begun, std::memory_order_release);
}

void Entry::finish(std::string_view failure) noexcept {
  event_->end = recording_clock();
  event_->failure.set(failure);
  event_->state.store(Event::State::ended, std::memory_order_release);
  event_ = nullptr;
  recording_.reset();
}

void Entry::end_with(std::uint32_t slot, std::uint32_t value) noexcept {
  if (!begun()) return;
  event_->slot = slot;
  event_->value = value;
  finish({});
}

void Entry::withdraw() noexcept {
  if (!begun()) return;
  event_->state.store(Event::State::withdrawn, std::memory_order_release);
  event_ = nullptr;
  recording_.reset();
}

}  // namespace zerohop::trace
