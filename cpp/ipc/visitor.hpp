// A process of this host that came in through the doorway: its socket, and what it is at work in.
#pragma once

#include <sys/socket.h>

#include "base/buffer.hpp"
#include "base/unique_fd.hpp"
#include "ipc/hazards.hpp"

namespace zerohop::ipc {

class Visitor {
 public:
  explicit Visitor(UniqueFd socket) : socket_(std::move(socket)), page_(sizeof(Hazards)) {}

  int socket() const noexcept { return socket_.get(); }
  int hazards_fd() const noexcept { return page_.fd(); }

  // Tells it that the visit is over. It may still have to finish a copy.
  void dismiss() const noexcept { ::shutdown(socket_.get(), SHUT_WR); }

  // Whether it has closed its end: with its last copy, or because it died. The kernel closes a
  // socket after the last thread of its process has ended.
  bool gone() const noexcept {
    std::byte first;
    return ::recv(socket_.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }

  // Whether it may still be copying from or to this slot.
  bool at_work_in(std::uint32_t slot) const noexcept {
    return reinterpret_cast<const Hazards*>(page_.data())->claimed(slot) && !gone();
  }

 private:
  UniqueFd socket_;
  Buffer page_;
};

}  // namespace zerohop::ipc
