// A descriptor that is readable while events are queued, like the descriptors of verbs.
#pragma once

#include "base/unique_fd.hpp"

namespace zerohop::softhca {

class EventCounter {
 public:
  EventCounter();  // throws Error if the process is out of descriptors
  EventCounter(const EventCounter&) = delete;
  EventCounter& operator=(const EventCounter&) = delete;

  int fd() const noexcept { return fd_.get(); }
  void add() noexcept;

  // Takes one event off the count. Blocks unless the owner of the descriptor set O_NONBLOCK, as
  // ibv_get_cq_event and ibv_get_async_event do. Returns 0, or errno (EAGAIN, EINTR).
  int take() noexcept;

  // Takes one event off the count if there is one; never blocks. For events that are withdrawn.
  void withdraw() noexcept;

 private:
  UniqueFd fd_;
};

}  // namespace zerohop::softhca
