// The barrier among ranks, by notifications.
//
// In each step a rank notifies some others that it has arrived, and hears from as many (Hoefler,
// Mehlan, Mietke, Rehm: Fast barrier synchronization for InfiniBand, 2006). Up to eight ranks
// notify all others at once: with a single step, ranks that share cores take turns only once. More
// ranks notify one other per step, the one 2**step further on (Hensgen, Finkel, Manber: Two
// algorithms for barrier synchronization, 1988). After the last step each rank has heard of all,
// directly or indirectly.
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
  static constexpr std::uint32_t kSlots = 2 * kSteps;  // on every rank's board
  static constexpr Rank kAtOnce = 8;                   // up to so many ranks use a single step
  // Plus, in the bits below, the digest of that rank's calls; 0: it may have made any calls.
  static constexpr std::uint32_t kArrived = std::uint32_t{1} << 31;
  // Plus the rank: that rank is lost. A rank that receives this need not wait for the lost one.
  static constexpr std::uint32_t kLost = 2;

  struct Place {
    Rank rank = 0;
    Rank size = 1;
    std::uint32_t first_slot = 0;  // of kSlots on this rank's board
    std::uint32_t bell = 0;        // notified when a rank finds that calls differ
  };
  Barrier(std::shared_ptr<Endpoint> endpoint, std::shared_ptr<CallLog> log, const Place& place);

  // first_slot: on that rank's board.
  void connect(Rank rank, std::shared_ptr<Peer> peer, std::uint32_t first_slot) {
    others_[rank] = {std::move(peer), first_slot};
  }

  enum class News {
    through,
    unknown,    // that rank must be notified, and is not connected
    lost,       // that rank was lost when it was to be notified
    reported,   // another rank reported that rank lost; -1: no rank, it has called shrink()
    different,  // that rank has made different calls
    quiet,      // nothing arrived in time
  };
  struct Outcome {
    News news = News::through;
    std::int64_t rank = -1;
  };

  bool rung() const { return endpoint_->peek_notify(place_.bell) != 0; }
  // Adds the barrier to the log, unless it is in progress.
  void begin();
  // Continues the barrier in progress. with_digest: this rank still makes calls.
  Outcome run(bool with_digest, const Deadline& deadline);

  std::uint64_t number() const noexcept { return call_ ? call_->number : 0; }  // in progress
  std::vector<Rank> missing() const;                                           // in this step
  // The ranks that this rank has yet to notify, and which of their slots, from 0.
  std::vector<std::pair<Rank, std::uint32_t>> unreported() const;

 private:
  std::uint32_t partners(std::uint32_t step) const noexcept;
  std::uint64_t distance(std::uint32_t step, std::uint32_t partner) const noexcept;
  // From 0: those of this rank and of its targets begin at different slots of their boards.
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
  struct Other {
    std::shared_ptr<Peer> peer;  // null: not connected yet
    std::uint32_t first_slot = 0;
  };
  std::vector<Other> others_;       // by rank
  std::optional<CallRecord> call_;  // of the barrier in progress
  // Two rows of slots, used alternately: a rank may be one barrier ahead of another, but not two.
  std::uint32_t row_ = 0;
  std::uint32_t step_ = 0;
  std::uint32_t reported_ = 0;             // partners notified in this step
  std::uint32_t heard_ = 0;                // partners heard in this step, one bit each
  std::vector<Endpoint::Notified> taken_;  // filled by hear(); a member to keep its capacity
};

}  // namespace zerohop::engine::collective
