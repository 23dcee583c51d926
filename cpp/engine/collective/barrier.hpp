// The barrier among ranks, by notifications.
//
// In each step a rank tells some that it has come, and hears from as many (Hoefler, Mehlan, Mietke,
// Rehm: Fast barrier synchronization for InfiniBand, 2006). Up to eight ranks tell all others at
// once: one step, so that ranks that share cores take turns once. More tell one in each step, the
// one 2**step further on (Hensgen, Finkel, Manber: Two algorithms for barrier synchronization,
// 1988). Behind the last step a rank has heard of all, at first or at second hand.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "engine/collective/call_log.hpp"
#include "engine/core/endpoint.hpp"

namespace zerohop::engine::collective {

// One thread at a time.
class Barrier {
 public:
  using Rank = std::uint32_t;
  static constexpr std::uint32_t kSteps = 32;          // more than any size needs: the last is free
  static constexpr std::uint32_t kSlots = 2 * kSteps;  // of every rank's board
  static constexpr Rank kAtOnce = 8;                   // ranks that make one step of it
  // With the digest of what that rank has called below it, or 0: it may have called anything.
  static constexpr std::uint32_t kArrived = std::uint32_t{1} << 31;
  // Below that: a rank is lost, plus its number. Whom that one tells need not wait for it.
  static constexpr std::uint32_t kLost = 2;

  struct Place {
    Rank rank = 0;
    Rank size = 1;
    std::uint32_t first_slot = 0;  // of kSlots
    std::uint32_t bell = 0;        // the slot where somebody rings who has found that calls differ
  };
  Barrier(std::shared_ptr<Endpoint> endpoint, std::shared_ptr<CallLog> log, const Place& place);

  void connect(Rank rank, std::shared_ptr<Peer> peer) { peers_[rank] = std::move(peer); }

  enum class News {
    through,
    unknown,    // that rank is to be told, and not connected
    lost,       // that rank is, as it was to be told
    told,       // by another rank that that one is lost; -1: nobody, it has called shrink()
    different,  // that rank has made other calls
    quiet,      // nothing came in time
  };
  struct Outcome {
    News news = News::through;
    std::int64_t rank = -1;
  };

  bool rung() const { return endpoint_->peek_notify(place_.bell) != 0; }
  // Puts the barrier into the log, unless it is under way.
  void begin();
  // Goes on with the one that was begun. with_digest: this rank still makes calls.
  Outcome run(bool with_digest, const Deadline& deadline);

  std::uint64_t number() const noexcept { return call_ ? call_->number : 0; }  // under way
  std::vector<Rank> missing() const;                                           // in this step
  // Whom this rank has yet to tell, and the slots there.
  std::vector<std::pair<Rank, std::uint32_t>> untold() const;

 private:
  std::uint32_t partners(std::uint32_t step) const noexcept;
  std::uint64_t distance(std::uint32_t step, std::uint32_t partner) const noexcept;
  std::uint32_t slot(std::uint32_t step, std::uint32_t partner) const noexcept;
  Rank target(std::uint32_t step, std::uint32_t partner) const noexcept;
  Rank source(std::uint32_t step, std::uint32_t partner) const noexcept;
  Outcome tell(std::uint32_t value);
  Outcome hear(std::uint32_t own, const Deadline& deadline);
  Outcome judge(std::uint32_t partner, std::uint32_t value, std::uint32_t own);

  const std::shared_ptr<Endpoint> endpoint_;
  const std::shared_ptr<CallLog> log_;
  const Place place_;
  const std::uint32_t radix_;
  std::vector<std::shared_ptr<Peer>> peers_;  // by rank; null: not connected yet
  std::optional<CallRecord> call_;            // of the one that is under way
  // Two rows of slots, taken in turns: a rank may be one barrier ahead of another, but not two.
  std::uint32_t row_ = 0;
  std::uint32_t step_ = 0;
  std::uint32_t told_ = 0;                 // partners of this step
  std::uint32_t heard_ = 0;                // ..., a bit for each
  std::vector<Endpoint::Notified> taken_;  // by hear(), which keeps the room
};

}  // namespace zerohop::engine::collective
