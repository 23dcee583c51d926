// A reduction in stages: which moves it makes in each step, and which blocks are combined.
//
// Arrays go in pieces, of which each is one stage behind the next: all stages are under way at
// once. Slices of up to kEager come with their headers, stay in the caches, are combined in the
// inboxes, and the arrays need no registration. Over a device and for large arrays, larger slices
// cost less, which are written to registered memory. Arrays of GPUs that do not reduce themselves
// go through the room, a chunk at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/collective/reduction.hpp"
#include "engine/collective/schedule.hpp"
#include "engine/collective/stages.hpp"

namespace zerohop::engine::collective {

constexpr std::uint64_t kMostSlice = std::uint64_t{64} << 20;  // bytes

class StagedReduction : public Schedule {
 public:
  struct Shape {
    Rank rank = 0;
    Rank size = 1;
    std::uint64_t slice = kEager;  // of Algorithm, up to kMostSlice
    std::uint64_t nbytes = 0;      // of the array
    bool has_result = true;        // this rank
    bool prefixes = false;         // rank r gets that of ranks 0 to r; the stages are flat
    Reduction reduction;
  };
  StagedReduction() = default;
  StagedReduction(const Shape& shape, Stages stages);

  // All arrays and the room are in the memory of terms.by, or CPUs reduce.
  void begin(Terms& terms);
  std::uint64_t slice() const noexcept { return shape_.slice; }
  std::uint64_t chunk() const noexcept { return chunk_most_; }  // after it nothing is on its way

  std::uint64_t room() const override;
  bool next(Step& step, std::span<const Move> arrived) override;

 private:
  // Of a piece.
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t nbytes = 0;
  };
  // A stage as this rank sees it.
  struct Part {
    Stage stage;
    bool in_from = false, in_to = false;
    std::size_t at_from = 0, at_to = 0;  // this rank's place there
    bool first = false;                  // of those of this rank: the arrays' own blocks
    bool last = false;                   // of those that combine
    std::size_t slot = 0;                // the first one for what arrives
  };
  // Which range the ranks of a stage share, and which one this rank has of it.
  struct Ranges {
    Range shared, own;
  };
  using AllRanges = std::vector<Ranges>;  // by stage

  void find_partners();
  void begin_chunk(std::uint64_t begin);
  std::optional<std::uint64_t> piece_at(std::uint64_t lag) const noexcept;
  const AllRanges& ranges(std::uint64_t piece) const noexcept;
  AllRanges ranges_of(std::uint64_t nbytes) const;
  Range slice(const Range& range, std::size_t number, std::size_t count) const noexcept;
  // In the program's array, or where a chunk of it is in the room.
  Block in(const Block& array, std::uint64_t piece, std::uint64_t begin) const noexcept;
  Block slot(std::size_t number) const noexcept;
  Block result(std::uint64_t piece, std::uint64_t begin) const noexcept;
  Block chunk_in_room() const noexcept;
  void combine(std::size_t stage, std::uint64_t piece, std::span<const Move> arrived);
  void reduce_into(std::byte* out, std::size_t count, std::uint64_t nbytes, bool last);
  void add_sends(std::size_t stage, std::uint64_t piece, std::vector<Move>& sends) const;
  void add_receives(std::size_t stage, std::uint64_t piece, std::vector<Move>& receives) const;
  std::uint32_t part_of(std::size_t stage, std::uint64_t piece) const noexcept;
  Move part_to(Rank rank, const Block& block, std::uint64_t nbytes, std::uint32_t part) const;

  Shape shape_;
  Block from_, to_;  // may be the same; `to_` is not used without a result on this rank
  bool through_room_ = false, over_ = false;
  std::vector<Part> parts_;
  std::size_t home_ = 0;  // the first stage whose result this rank keeps
  std::uint64_t piece_most_ = 0, chunk_most_ = 0;
  std::uint64_t lead_ = 0;                      // steps by which a send is ahead of its receive
  std::uint64_t slots_ = 0, results_ = 0;       // of a slice each, in the room
  AllRanges full_, rest_;                       // of all pieces but the last, and of that
  std::uint64_t chunk_ = 0, chunk_nbytes_ = 0;  // the one on its way
  std::uint64_t pieces_ = 0;                    // of the chunk
  std::uint64_t step_ = 0;                      // the next one of the chunk
  std::vector<const std::byte*> inputs_;
};

// As the table of the topology has it.
StagedReduction plan_of(const Terms& terms);

}  // namespace zerohop::engine::collective
