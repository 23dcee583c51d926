// Broadcast, scatter, gather, all_gather, all_to_all and send_recv: which rank sends what to which,
// and when.
//
// Among a few ranks small blocks go to all of them at once: ranks that share cores take turns once
// per step, which takes longer than some additional messages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/collective/schedule.hpp"

namespace zerohop::engine::collective {

class Movement : public Schedule {
 public:
  void begin(Terms& terms);

  std::uint64_t room() const override;
  bool next(Step& step, std::span<const Move> arrived) override;

 private:
  // at_once: every block goes from its source to its target. relay: a broadcast in pieces, each
  // passed on while the next one arrives. disseminate: in step k every rank sends all its blocks,
  // 2^k, to the rank 2^k before it (Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for
  // all-to-all communications, 1997). ring: every rank sends and receives each block once.
  enum class Pattern { at_once, relay, disseminate, ring };

  using Group = std::vector<Rank>;

  Pattern pattern() const;
  void add_others(std::vector<Rank>& ranks) const;
  void find_neighbours();
  void relay_from_root();
  std::vector<Group> hosts_from(Rank root) const;
  void grow(const Group& group, bool at_once);
  Rank after(Rank rank, Rank steps) const noexcept { return (rank + steps) % terms_.size; }
  Rank before(Rank rank, Rank steps) const noexcept {
    return (rank + terms_.size - steps) % terms_.size;
  }
  bool copies_own() const noexcept;
  bool is_by_cpu(const Copy& copy) const noexcept;
  bool at_once(std::uint64_t number, Step& step) const;
  bool relay(std::uint64_t number, Step& step) const;
  bool disseminate(std::uint64_t number, Step& step) const;
  bool go_round(std::uint64_t number, Step& step) const;
  Block in_order(Rank first, Rank last) const;

  Terms terms_;
  Pattern pattern_ = Pattern::at_once;
  std::vector<Rank> sources_, targets_;
  std::uint64_t pieces_ = 1;
  std::vector<std::uint64_t> begins_;  // in the room, of the blocks after this rank's
  std::uint64_t step_ = 0;
};

}  // namespace zerohop::engine::collective
