// What event loops wait for at an Endpoint: notifications, and peers that connect. No thread blocks
// for them: the thread that makes such a change calls Poller::wake(), which looks here. Waking a
// loop takes no value: one that the loop does not fetch stays there for others.
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
  // Called once, with locks of the engine held: it may only schedule the wake-up.
  using Tell = std::function<void()>;
  using Id = std::uint64_t;

  explicit AsyncWaits(std::shared_ptr<Board> board) : board_(std::move(board)) {}

  struct Begun {
    Id id;
    bool first;  // first wait for slots: a sleeper was counted, see Poller::arm_for_sleepers()
  };
  // Calls `tell` once a slot of [first, first + count) may have a value; at once, if one has.
  Begun await_slots(std::uint32_t first, std::uint32_t count, Tell tell);
  // Calls `tell` once another peer may have connected.
  Begun await_peer(Tell tell);
  // Does nothing once the wait has ended.
  void forget(Id id);

  void look() noexcept;        // values may have come
  void tell_peers() noexcept;  // a peer has connected
  void tell_slots() noexcept;  // no peer is left to notify
  void tell_all() noexcept;    // the Endpoint can no longer be used
  // Looks for values that GPUs put: no thread wakes a loop for those, or it does so before they are
  // visible. Returns when to look again. For one thread.
  std::chrono::milliseconds look_for_gpus() noexcept;

 private:
  // Slots are the leaves of a binary tree. A range is a few nodes, and the waits for a slot are
  // found on the way from it to the root.
  static constexpr std::uint32_t kLeaves = Board::kSlots;
  static constexpr std::uint32_t kPeers = 0;  // not a node of the tree: the root is 1

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
  std::atomic<std::size_t> for_slots_{0};  // number of waits for slots
  std::atomic<std::uint64_t> seen_{0};     // value of the board's puts() at the last look

  Mutex<Rank::async_waits> mutex_;  // guards the next three
  Id next_ = 1;
  std::map<Id, Wait> waits_;
  std::unordered_map<std::uint32_t, std::set<Id>> by_node_;

  std::chrono::steady_clock::time_point look_again_{};  // of the one thread
};

}  // namespace zerohop::engine
