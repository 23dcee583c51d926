// A process of this host that came in through the doorway: its socket, and what it is at work in.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "base/buffer.hpp"
#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "ipc/hazards.hpp"
#include "ipc/packet.hpp"

namespace zerohop::ipc {

// A visitor copies a few MiB under one claim. One that needs longer than this was stopped.
inline constexpr Deadline::Seconds kLongestCopy{5};

// Looks again and again, as who copies cannot tell when it is done. False: the deadline passed
// first.
template <typename Done>
bool await_copies(Done done, const Deadline& deadline) {
  while (!done()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

class Visitor {
 public:
  explicit Visitor(UniqueFd socket) : socket_(std::move(socket)), page_(sizeof(Hazards)) {}

  int socket() const noexcept { return socket_.get(); }
  int hazards_fd() const noexcept { return page_.fd(); }

  // Ends the visit: nothing is begun any more. It may still have to finish a copy.
  void dismiss() const noexcept {
    hazards().dismiss();
    ::shutdown(socket_.get(), SHUT_WR);
  }

  // Whether it has closed its end: with its last copy, or because it died. The kernel closes a
  // socket after the last thread of its process has ended.
  bool gone() const noexcept { return is_hung_up(socket_.get()); }

  // Whether it may still be copying from or to this slot.
  bool at_work_in(std::uint32_t slot) const noexcept { return hazards().claimed(slot) && !gone(); }
  bool at_work() const noexcept { return hazards().claimed() && !gone(); }  // in any, or the board

 private:
  Hazards& hazards() const noexcept { return *reinterpret_cast<Hazards*>(page_.data()); }

  UniqueFd socket_;
  Buffer page_;
};

}  // namespace zerohop::ipc
