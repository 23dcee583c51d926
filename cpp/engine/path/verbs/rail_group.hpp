// What the rails of one Peer share: the lock, the messages that wait for their
// recv, and the order between different rails.
//
// A queue pair keeps the order of its own requests; two queue pairs are not ordered with each
// other. So a message (a notification, a send) is posted once everything submitted earlier on other
// rails has completed. An acknowledged write has reached the responder's adapter, but may not be
// visible behind it. So on those rails each job of writes ends with a read of the last byte. The
// responder executes it after the writes, and it pushes them to memory before it is answered (PCI
// Express Base Specification, 2.4.1: a read request passes no posted write).
//
// Requests under way on a queue pair that broke may still arrive until the peer has drained its end
// too. Later jobs wait for that on every rail, so that old data never overwrites new data.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/locks.hpp"
#include "engine/path/verbs/job.hpp"
#include "engine/path/verbs/matcher.hpp"
#include "engine/rail.hpp"

namespace zerohop::engine {

class StagedMessages;
class PeerRail;

class RailGroup {
 public:
  using Clock = std::chrono::steady_clock;
  using Since = std::optional<Clock::time_point>;  // start of the state; null: not in it

  explicit RailGroup(std::string name) : peer_name(std::move(name)) {}

  // Rails known to work. May change at any time unless the lock is held.
  RailMask serving() const noexcept { return serving_.load(std::memory_order_acquire); }
  void set_serving(RailIndex rail, bool serves) noexcept;
  // How many rails both ends have; decided when they connect.
  std::size_t rails() const noexcept { return rails_.load(std::memory_order_relaxed); }
  void set_rails(std::size_t count) noexcept { rails_.store(count, std::memory_order_relaxed); }

  // Limit of the payload inside a message, accepted by both ends. The same on all rails; 0 until
  // one is connected.
  std::uint32_t eager_limit() const noexcept {
    return eager_limit_.load(std::memory_order_relaxed);
  }
  void set_eager_limit(std::uint32_t nbytes) noexcept {
    eager_limit_.store(nbytes, std::memory_order_relaxed);
  }

  // The rail of messages. It changes only if it fails, so messages stay in order. It is not
  // closed as long as any is open.
  RailIndex message_rail() const noexcept { return message_rail_.load(std::memory_order_relaxed); }

  // True: devices have no pending work for the Peer, and it has seen all completed work. Recorded
  // by note_calm(); false: ask PeerRails::work().
  bool calm() const noexcept { return calm_.load(std::memory_order_acquire); }

  // --- with the lock held ---
  void note_calm() noexcept { calm_.store(true, std::memory_order_release); }
  void stir() noexcept { calm_.store(false, std::memory_order_relaxed); }  // at every change
  void add(RailIndex rail, PeerRail* peer_rail);
  void remove(RailIndex rail) noexcept;
  PeerRail* at(RailIndex rail) const noexcept {
    return rail < members_.size() ? members_[rail] : nullptr;
  }
  // Whether no failed request can still arrive.
  bool settled() const noexcept { return unsettled_ == 0; }
  Since unsettled(RailIndex rail) const noexcept;
  void unsettle(RailIndex rail) noexcept;
  Since dark() const noexcept { return dark_; }  // no rail works any more
  void settle(RailIndex rail);
  RailMask open_rails() const noexcept;  // those that are not closed
  // What a message on that rail must wait for; null: the others have nothing under way.
  std::unique_ptr<const Fence> make_fence(RailIndex rail) const;
  bool passed(const Fence& fence) const noexcept;
  // `rail` has completed work that others may have waited for.
  void advance_others(RailIndex rail);
  // Jobs (before, upto] of `rail` failed; fails the messages that had to follow them.
  void fail_followers(RailIndex rail, std::uint64_t before, std::uint64_t upto);
  void release_credits();

  const std::string peer_name;
  std::weak_ptr<StagedMessages> staged;   // of the Peer; set before any rail exists
  mutable Mutex<Rank::rail_group> mutex;  // taken after the poller's, before a Transfer's
  Matcher matcher;

 private:
  std::atomic<RailMask> serving_{0};
  std::atomic<std::size_t> rails_{1};
  std::atomic<std::uint32_t> eager_limit_{0};
  std::atomic<RailIndex> message_rail_{0};
  std::atomic<bool> calm_{false};
  RailMask unsettled_ = 0;  // rails whose old queue pair may still exist at the peer
  std::array<Clock::time_point, kMaxRails> unsettled_since_{};  // since when
  Since dark_;
  std::vector<PeerRail*> members_;  // null: none
};

}  // namespace zerohop::engine
