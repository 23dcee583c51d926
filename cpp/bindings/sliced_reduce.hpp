// An all_reduce or a reduce of a host array that is not small, in steps: every rank reduces a slice
// of each piece, and sends it to the ranks that want it, while slices of the next pieces are on
// their way. (Rabenseifner: Optimization of collective reduction operations, 2004, with direct
// exchanges instead of halving.)
//
// Slices are so small that they come with their headers and stay in the caches: they are reduced in
// the inboxes, and the arrays need no registration. Over a device, and with checks, larger slices
// that are written to their place cost less from kMost on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/collective/exchange.hpp"
#include "engine/collective/reduction.hpp"

namespace zerohop::bindings::collective {

// Small arrays are exchanged whole. As in zerohop/collectives/reductions.py.
inline bool is_one_shot(engine::collective::Rank size, std::uint64_t nbytes) noexcept {
  using engine::collective::kEager;
  return nbytes <= kEager && (size - 1) * nbytes <= 2 * kEager;
}

class SlicedReduce {
 public:
  using Rank = engine::collective::Rank;
  using Move = engine::collective::Move;

  static constexpr std::uint64_t kMost = std::uint64_t{1} << 20;  // unless all ranks are near
  static constexpr std::uint64_t kChunk = std::uint64_t{4} << 20;

  struct Place {
    Rank rank = 0;
    Rank size = 1;
    std::int32_t root = engine::collective::kNoRoot;  // the only rank with a result; kNoRoot: all
  };
  struct Arrays {
    std::byte* from = nullptr;
    std::byte* to = nullptr;  // may be `from`; null: no result on this rank
    std::uint64_t nbytes = 0;
    std::byte* room = nullptr;  // of room_for() bytes
    std::uint64_t before = 0;   // bytes of the call's array before these: whole chunks
  };
  static std::uint64_t room_for(Rank size) noexcept;
  // Bytes of an array after which nothing is on its way: a rank may pass arrays in such chunks,
  // while others pass the whole arrays.
  static std::uint64_t chunk_for(Rank size) noexcept;

  void begin(const Place& place, const engine::collective::Reduction& reduction,
             const Arrays& arrays);
  // The moves of the next step, without labels but for the part. False: all is done. arrived: the
  // receives of the moves before, which are complete.
  bool next(std::vector<Move>& sends, std::vector<Move>& receives, std::span<const Move> arrived);

 private:
  struct Piece {
    std::uint64_t begin;  // in the array
    std::uint64_t count;  // elements
  };
  struct Slice {
    std::uint64_t begin;
    std::uint64_t nbytes;
  };
  void begin_chunk(std::uint64_t begin) noexcept;
  std::optional<Piece> piece(std::uint64_t lag) const noexcept;
  Slice slice(const Piece& piece, Rank rank) const noexcept;
  bool wants(Rank rank) const noexcept;
  std::byte* result(const Slice& own) const noexcept;
  void reduce_own(const Piece& piece, std::span<const Move> arrived);
  Move move(Rank rank, std::byte* bytes, const Slice& moved, const Piece& piece,
            bool is_result) const noexcept;

  Place place_;
  engine::collective::Reduction reduction_;
  Arrays arrays_;
  std::uint64_t chunk_ = 0, chunk_nbytes_ = 0;  // the one on its way
  std::uint64_t pieces_ = 0;                    // of the chunk
  std::uint64_t step_ = 0;                      // the next one of the chunk
  std::vector<const std::byte*> inputs_;
};

}  // namespace zerohop::bindings::collective
