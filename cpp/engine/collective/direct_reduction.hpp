// A reduction in which every rank gets the blocks that its result depends on from their ranks, and
// combines them in the order of ranks: small arrays among a few ranks, and reduce_scatter.
//
// Large blocks go in pieces. Arrays of GPUs that do not reduce themselves go through the room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/collective/schedule.hpp"

namespace zerohop::engine::collective {

class DirectReduction : public Schedule {
 public:
  void begin(Terms& terms);

  std::uint64_t room() const override;
  bool next(Step& step, std::span<const Move> arrived) override;

 private:
  bool reduces() const noexcept { return !terms_.outs.empty(); }
  const Block& block_for(Rank rank) const noexcept;
  // Piece `number` of a block; empty after the last one.
  Block piece(const Block& block, std::uint64_t number) const noexcept;
  bool has(const Block& block, std::uint64_t number) const noexcept;
  Block slot(std::size_t number, std::uint64_t nbytes) const noexcept;
  void combine(std::uint64_t number, std::span<const Move> arrived);

  Terms terms_;
  std::vector<Rank> sources_, targets_;
  std::uint64_t piece_ = 0;               // most bytes
  std::uint64_t pieces_ = 0;              // of the longest block
  bool own_in_room_ = false;              // this rank's block
  bool result_in_room_ = false;           // the result, before it is copied
  std::vector<const std::byte*> inputs_;  // in the order of ranks
  std::uint64_t step_ = 0;
};

}  // namespace zerohop::engine::collective
