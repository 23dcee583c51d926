// A descriptor from which a program reads events: of completion queues, or asynchronous ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "base/unique_fd.hpp"
#include "softhca/event_counter.hpp"

namespace zerohop::mlx5sim {

// What events are about. Counts those that were read: destroying it reports the number.
struct EventSource {
  std::uint32_t delivered = 0;  // guarded by the EventFile's lock
};

class EventFile {
 public:
  EventFile();  // throws Error

  int fd() const noexcept { return shown_.get(); }

  // `source` may be null.
  template <typename Description>
  void push(const Description& event, EventSource* source) {
    static_assert(sizeof event <= kMostBytes);
    Queued queued{source, sizeof event, {}};
    __builtin_memcpy(queued.bytes.data(), &event, sizeof event);
    push(queued);
  }
  // read(2): one event. Blocks unless the descriptor is O_NONBLOCK. -1 with errno.
  std::ptrdiff_t read(void* to, std::size_t nbytes) noexcept;
  // Withdraws what was not read. Returns how many were.
  std::uint32_t forget(EventSource& source) noexcept;

 private:
  static constexpr std::size_t kMostBytes = 16;
  struct Queued {
    EventSource* source;
    std::size_t nbytes;
    std::array<std::byte, kMostBytes> bytes;
  };
  void push(const Queued& event);

  softhca::EventCounter counter_;
  UniqueFd shown_;  // the same for the program: what it reads there is answered by read()
  std::mutex mutex_;
  std::deque<Queued> queued_;
};

}  // namespace zerohop::mlx5sim
