// A process of this host admitted by the local server: its socket, and its accesses.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "base/buffer.hpp"
#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "shm/hazards.hpp"
#include "shm/packet.hpp"

namespace zerohop::shm {

// A client copies a few MiB under one claim. If it takes longer than this, it was stopped.
inline constexpr Deadline::Seconds kLongestCopy{5};

// Polls, because a client cannot signal that its copy is done. False: the deadline passed first, or
// it is `in_vain`, which is asked now and then.
template <typename Done, typename InVain>
bool await_copies(Done done, InVain in_vain, const Deadline& deadline) {
  constexpr int kPolls = 100;  // between two questions: 10 ms
  for (int polls = 1; !done(); ++polls) {
    if (deadline.passed() || (polls % kPolls == 0 && in_vain())) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

template <typename Done>
bool await_copies(Done done, const Deadline& deadline) {
  return await_copies(done, [] { return false; }, deadline);
}

// Why copies have not ended in time, and what may follow; appended to the name of the copying
// process. memory: what they read or write.
inline std::string why_unended(bool by_gpu, const std::string& memory) {
  if (!by_gpu) {
    return " was stopped while it copied from or to " + memory +
           ", and may finish that copy when it goes on";
  }
  return " has GPU copies from or to " + memory +
         " that have not finished: their stream has not reached them yet, the GPU hangs, "
         "or the process was stopped; they may still run, and the memory stays until they have";
}

class LocalClient {
 public:
  explicit LocalClient(UniqueFd socket) : socket_(std::move(socket)), page_(sizeof(Hazards)) {}

  std::atomic<int> questions{0};  // waiting for a driver

  int socket() const noexcept { return socket_.get(); }
  int hazards_fd() const noexcept { return page_.fd(); }

  // Ends the session: the client starts nothing more, but may have a copy to finish.
  void dismiss() const noexcept {
    hazards().dismiss();
    ::shutdown(socket_.get(), SHUT_WR);
  }

  // Whether the client has closed its end: after its last copy, or because it died. The kernel
  // closes a socket after the last thread of its process has ended.
  bool gone() const noexcept { return is_hung_up(socket_.get()); }

  // Whether its process is stopped after the end of the session: waiting for its copies is in vain.
  bool stays_stopped() const noexcept;

  // Whether it may still be copying from or to this slot.
  bool at_work_in(std::uint32_t slot) const noexcept { return hazards().claimed(slot) && !gone(); }
  bool at_work() const noexcept { return hazards().claimed() && !gone(); }  // or the board
  // Whether a GPU copies for it, in that slot or in any.
  bool gpu_at_work_in(std::uint32_t slot) const noexcept { return hazards().held(slot) && !gone(); }
  bool gpu_at_work() const noexcept { return hazards().held() && !gone(); }

 private:
  Hazards& hazards() const noexcept { return *reinterpret_cast<Hazards*>(page_.data()); }

  UniqueFd socket_;
  Buffer page_;
};

}  // namespace zerohop::shm
