// An all_reduce of medium size, in steps: every rank reduces a slice of each piece, and sends it to
// the others, while it gets the others' slices of the next piece. So small that all blocks come
// with their headers. As in zerohop/collectives/reductions.py, which some ranks of the same call
// may use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/collective/exchange.hpp"
#include "engine/collective/reduction.hpp"

namespace zerohop::bindings::collective {

// Small arrays are exchanged whole.
inline bool is_one_shot(engine::collective::Rank size, std::uint64_t nbytes) noexcept {
  using engine::collective::kEager;
  return nbytes <= kEager && (size - 1) * nbytes <= 2 * kEager;
}

class SlicedReduce {
 public:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 20;  // bytes of the array

  struct Arrays {
    std::byte* from;
    std::byte* to;  // may be `from`
    std::uint64_t nbytes;
    std::byte* room;  // of room_for() bytes
  };
  static std::uint64_t room_for(engine::collective::Rank size) noexcept;

  void begin(engine::collective::Rank rank, engine::collective::Rank size,
             const engine::collective::Reduction& reduction, const Arrays& arrays);
  // The moves of the next step, without labels but for the part. False: all is done. The moves
  // before must be complete.
  bool next(std::vector<engine::collective::Move>& sends,
            std::vector<engine::collective::Move>& receives);

 private:
  using Rank = engine::collective::Rank;
  struct Slice {
    std::uint64_t begin;  // in the array
    std::uint64_t nbytes;
  };
  Slice slice(std::uint64_t piece, Rank rank) const noexcept;
  std::byte* slot(Rank rank) const noexcept;
  void reduce_own(std::uint64_t piece);

  Rank rank_ = 0, size_ = 1;
  engine::collective::Reduction reduction_;
  Arrays arrays_{};
  std::uint64_t piece_nbytes_ = 0, pieces_ = 0;
  std::uint64_t step_ = 0;  // the next one
  std::vector<const std::byte*> inputs_;
};

}  // namespace zerohop::bindings::collective
