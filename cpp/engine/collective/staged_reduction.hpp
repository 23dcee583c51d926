// A reduction in stages: which moves it makes in each step, and which blocks are combined.
//
// Arrays go in pieces, of which each is one stage behind the next: all stages are under way at
// once. Slices of up to kEager come with their headers, stay in the caches, are combined in the
// inboxes, and the arrays need no registration. Over a device and for large arrays, larger slices
// cost less, which are written to registered memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/collective/combiner.hpp"
#include "engine/collective/exchange.hpp"
#include "engine/collective/reduction.hpp"
#include "engine/collective/stages.hpp"

namespace zerohop::engine::collective {

constexpr std::uint64_t kMostSlice = std::uint64_t{64} << 20;  // bytes

class StagedReduction {
 public:
  struct Terms {
    Rank rank = 0;
    Rank size = 1;
    std::uint64_t slice = kEager;  // of Algorithm, up to kMostSlice
    std::uint64_t nbytes = 0;      // of the call's array
    bool has_result = true;        // this rank
    bool prefixes = false;         // rank r gets that of ranks 0 to r; the stages are flat
    Reduction reduction;
  };
  StagedReduction() = default;
  StagedReduction(const Terms& terms, Stages stages);

  // Bytes of an array after which nothing is on its way: a rank may pass arrays in such chunks,
  // while others pass the whole arrays.
  std::uint64_t slice() const noexcept { return terms_.slice; }
  std::uint64_t chunk() const noexcept { return chunk_most_; }
  std::uint64_t room() const noexcept { return (slots_ + results_) * terms_.slice; }
  // The ranks with moves to or from this one.
  std::vector<Rank> partners() const;

  struct Array {
    std::byte* bytes = nullptr;
    std::shared_ptr<const Memory> memory{};  // needed if slices may be larger than kEager
  };
  // All in the memory of the Combiner.
  struct Arrays {
    Array from;
    Array to;    // may be `from`; not used without a result on this rank
    Array room;  // of room() bytes
    std::uint64_t nbytes = 0;
    std::uint64_t before = 0;        // bytes of the call's array before these: whole chunks
    std::shared_ptr<Combiner> by{};  // null: CPUs, in host memory
  };
  void begin(Arrays arrays);
  // The moves of the next step, without labels but for the part. False: all is done. arrived: the
  // receives of the moves before, which are complete.
  bool next(std::vector<Move>& sends, std::vector<Move>& receives, std::span<const Move> arrived);

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
  struct Place {
    std::byte* bytes;
    const std::shared_ptr<const Memory>* memory;
  };

  void begin_chunk(std::uint64_t begin);
  std::optional<std::uint64_t> piece_at(std::uint64_t lag) const noexcept;
  const AllRanges& ranges(std::uint64_t piece) const noexcept;
  AllRanges ranges_of(std::uint64_t nbytes) const;
  Range slice(const Range& range, std::size_t number, std::size_t count) const noexcept;
  Place in(const Array& array, std::uint64_t piece, std::uint64_t begin) const noexcept;
  Place slot(std::size_t number) const noexcept;
  Place result(std::uint64_t piece, std::uint64_t begin) const noexcept;
  void combine(std::size_t stage, std::uint64_t piece, std::span<const Move> arrived);
  void reduce_into(std::byte* out, std::size_t count, std::uint64_t nbytes, bool last);
  void add_sends(std::size_t stage, std::uint64_t piece, std::vector<Move>& sends) const;
  void add_receives(std::size_t stage, std::uint64_t piece, std::vector<Move>& receives) const;
  std::uint32_t part_of(std::size_t stage, std::uint64_t piece) const noexcept;
  Move move(Rank rank, const Place& place, std::uint64_t nbytes, std::uint32_t part) const;

  Terms terms_;
  Arrays arrays_;
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

// As the table of the topology has it. root: of a reduce, else kNoRoot.
StagedReduction plan_of(const Topology& topology, StagedReduction::Terms terms, std::int32_t root);

}  // namespace zerohop::engine::collective
