// What a process did and when, kept in memory of fixed size while somebody asks for it: transfers,
// and waits for notifications. Without a recording it costs the look at one flag.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace zerohop::trace {

// Text that is cut where it has no more room, so that an event needs no memory of its own.
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

// Times: nanoseconds of CLOCK_MONOTONIC, which processes of one host share.
struct Event {
  enum class State : std::uint8_t { begun, ended, withdrawn };
  std::atomic<State> state{State::withdrawn};  // released behind what the state says is set
  // Set as it begins.
  const char* what = "";  // "write"; a literal
  std::uint64_t begin = 0;
  std::uint64_t nbytes = 0;
  ShortText<64> peer;
  ShortText<16> route;
  ShortText<32> device;
  // Set as it ends.
  std::uint64_t end = 0;
  std::uint32_t slot = 0;
  std::uint32_t value = 0;  // of a notification; 0: none
  ShortText<120> failure;   // empty: it ended well
};

class Recording {
 public:
  explicit Recording(std::size_t most) : events_(most) {}

  // Null: there is no room, which is counted.
  Event* claim() noexcept;
  // Those that were claimed so far, in that order; what is withdrawn among them does not count.
  std::size_t claimed() const noexcept;
  const Event& event(std::size_t index) const noexcept { return events_[index]; }
  std::uint64_t dropped() const noexcept;

 private:
  std::vector<Event> events_;
  std::atomic<std::uint64_t> next_{0};  // as many asked for one
};

std::uint64_t recording_clock() noexcept;

namespace detail {
inline std::atomic<bool> recording{false};
}  // namespace detail

inline bool records() noexcept { return detail::recording.load(std::memory_order_relaxed); }

// The one that goes on, of this process; null: none.
std::shared_ptr<Recording> recording() noexcept;
// Null: from here on none. Returns what went on before.
std::shared_ptr<Recording> set_recording(std::shared_ptr<Recording> next) noexcept;

// In a child made by fork(): that is its parent's.
void forget_recording();

// One event, from begin() to an end; without one it is as if it had never begun.
class Entry {
 public:
  Entry() = default;
  ~Entry() { withdraw(); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  struct Told {
    const char* what;
    std::uint64_t nbytes = 0;
    std::string_view peer{}, route{}, device{};
    std::uint64_t begin = 0;  // of recording_clock(); 0: now
  };
  // Nothing where nothing is recorded, or where it has begun.
  void begin(const Told& told) noexcept;
  bool begun() const noexcept { return event_ != nullptr; }
  void end(std::string_view failure = {}) noexcept {
    if (begun()) finish(failure);
  }
  void end_with(std::uint32_t slot, std::uint32_t value) noexcept;
  void withdraw() noexcept;

 private:
  void finish(std::string_view failure) noexcept;

  std::shared_ptr<Recording> recording_;  // keeps the event
  Event* event_ = nullptr;
};

}  // namespace zerohop::trace
