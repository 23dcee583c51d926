// What event loops wait for at an Endpoint: notifications, and peers that connect. No thread waits
// for them: the thread that makes such a change calls Poller::wake(), which looks here. Telling a
// loop takes nothing: a value that it does not fetch stays there for others.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "base/locks.hpp"
#include "engine/notify/board.hpp"

namespace zerohop::engine {

// Any thread.
class AsyncWaits {
 public:
  // Called once, with locks of the engine held: it only passes the word on.
  using Tell = std::function<void()>;
  using Id = std::uint64_t;

  explicit AsyncWaits(std::shared_ptr<Board> board) : board_(std::move(board)) {}

  struct Begun {
    Id id;
    bool first;  // that waits for slots: a sleeper has been counted, see Poller::arm_for_sleepers()
  };
  // Tells when a slot of [first, first + count) may have a value: at once, if it has.
  Begun await_slots(std::uint32_t first, std::uint32_t count, Tell tell);
  // Likewise, when a peer may have connected from now on.
  Begun await_peer(Tell tell);
  // Does nothing once the wait has ended.
  void leave(Id id);

  void look() noexcept;        // values may have come
  void tell_peers() noexcept;  // a peer has connected
  void tell_slots() noexcept;  // nobody is left who could notify
  void tell_all() noexcept;    // the Endpoint is of no use any more
  // Looks for values that GPUs have put: no thread wakes a loop for those, or one does so before
  // they can be seen. Returns when to look again. For one thread.
  std::chrono::milliseconds look_for_gpus() noexcept;

 private:
  // Slots are the leaves of a binary tree: a range is a few nodes, and who waits for a slot is
  // found on the way from it to the root.
  static constexpr std::uint32_t kLeaves = Board::kSlots;
  static constexpr std::uint32_t kPeers = 0;  // no node of the tree: the root is 1

  struct Wait {
    std::uint32_t first = 0;
    std::uint32_t count = 0;  // 0: for a peer
    Tell tell;
  };

  // --- with the mutex held ---
  template <typename Visit>
  static void visit_nodes(const Wait& wait, Visit&& visit);
  Begun add(Wait&& wait);
  void remove(Id id);
  void tell(Id id);
  void tell_node(std::uint32_t node);
  void tell_slot(std::uint32_t slot);
  void tell_filled();
  void tell_waits_for_slots();

  const std::shared_ptr<Board> board_;
  std::atomic<std::size_t> for_slots_{0};  // how many wait for slots
  std::atomic<std::uint64_t> seen_{0};     // puts of the board that were looked at

  Mutex<Rank::async_waits> mutex_;  // guards the next three
  Id next_ = 1;
  std::map<Id, Wait> waits_;
  std::unordered_map<std::uint32_t, std::set<Id>> by_node_;

  std::chrono::steady_clock::time_point look_again_{};  // of the one thread
};

}  // namespace zerohop::engine
