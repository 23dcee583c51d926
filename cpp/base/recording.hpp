// What a process did and when, kept in fixed-size memory while a recording is on: transfers, and
// waits for notifications. Without a recording the cost is one flag test.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace zerohop::trace {

// Text, truncated to its fixed size, so that an event allocates nothing.
template <std::size_t size>
class ShortText {
 public:
  void set(std::string_view text) noexcept {
    length_ = static_cast<unsigned char>(text.copy(text_.data(), size));
  }
  std::string_view view() const noexcept { return {text_.data(), length_}; }

 private:
  static_assert(size < 256);
  std::array<char, size> text_;
  unsigned char length_ = 0;
};

// Times: nanoseconds of CLOCK_MONOTONIC, which all processes of a host share.
struct Event {
  enum class State : std::uint8_t { begun, ended, withdrawn };
  std::atomic<State> state{State::withdrawn};  // stored with release order, last
  // Set when the event begins.
  const char* what = "";  // "write"; a literal
  std::uint64_t begin = 0;
  std::uint64_t nbytes = 0;
  ShortText<64> peer;
  ShortText<16> route;
  ShortText<32> device;
  // Set when the event ends.
  std::uint64_t end = 0;
  std::uint32_t slot = 0;
  std::uint32_t value = 0;  // of a notification; 0: none
  ShortText<120> failure;   // empty: success
};

class Recording {
 public:
  explicit Recording(std::size_t most) : events_(most) {}

  // Null: full; the miss is counted.
  Event* claim() noexcept;
  // The events claimed so far, in that order; withdrawn ones among them do not count.
  std::size_t claimed() const noexcept;
  const Event& event(std::size_t index) const noexcept { return events_[index]; }
  std::uint64_t dropped() const noexcept;

 private:
  std::vector<Event> events_;
  std::atomic<std::uint64_t> next_{0};  // claims attempted
};

std::uint64_t recording_clock() noexcept;

namespace detail {
inline std::atomic<bool> recording{false};
}  // namespace detail

inline bool records() noexcept { return detail::recording.load(std::memory_order_relaxed); }

// The active recording of this process; null: none.
std::shared_ptr<Recording> recording() noexcept;
// Null stops recording. Returns the previous one.
std::shared_ptr<Recording> set_recording(std::shared_ptr<Recording> next) noexcept;

// Call in a child made by fork(): the recording belongs to the parent.
void forget_recording();

// One event, from begin() to an end; an Entry that never ends leaves no event.
class Entry {
 public:
  Entry() = default;
  ~Entry() { withdraw(); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  struct Facts {
    const char* what;
    std::uint64_t nbytes = 0;
    std::string_view peer{}, route{}, device{};
    std::uint64_t begin = 0;  // of recording_clock(); 0: now
  };
  // Does nothing when no recording is on or the entry has begun already.
  void begin(const Facts& facts) noexcept;
  bool begun() const noexcept { return event_ != nullptr; }
  void end(std::string_view failure = {}) noexcept {
    if (begun()) finish(failure);
  }
  void end_with(std::uint32_t slot, std::uint32_t value) noexcept;
  void withdraw() noexcept;

 private:
  void finish(std::string_view failure) noexcept;

  std::shared_ptr<Recording> recording_;  // keeps event_ alive
  Event* event_ = nullptr;
};

}  // namespace zerohop::trace
