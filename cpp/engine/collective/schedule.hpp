// What one rank does in a collective: step after step the blocks that it sends and receives, and
// its own copies (a schedule, as libNBC has it). The rank's Exchange carries it out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/collective/combiner.hpp"
#include "engine/collective/message.hpp"
#include "engine/collective/stages.hpp"
#include "engine/memory/memory.hpp"

namespace zerohop::engine::collective {

// An array of a call on this rank, or memory in which blocks stay for a while.
struct Array {
  std::byte* bytes = nullptr;
  std::shared_ptr<const Memory> memory{};  // null: nobody has registered it so far
  bool on_host = true;                     // a CPU has access to it
};

struct Block {
  std::size_t array = 0;  // its number
  std::uint64_t begin = 0, nbytes = 0;

  Block part(std::uint64_t from, std::uint64_t size) const noexcept {
    return {array, begin + from, size};
  }
};

// The two are the same memory, or do not overlap.
struct Copy {
  Block target, source;
};

// A block to a rank, or from it.
struct Move {
  Rank rank = 0;
  std::byte* bytes = nullptr;  // null: not accessible to a CPU
  std::uint64_t nbytes = 0;
  std::shared_ptr<const Memory> memory{};  // of a block that is written
  Label label;
  std::size_t array = 0;    // of the Schedule
  std::uint64_t begin = 0;  // in that array
  // Of a receive: the block may stay in the inbox, which saves a copy, until the next step begins.
  // `arrived` is then its place there, else `bytes`.
  bool may_stay = false;
  const std::byte* arrived = nullptr;
  // Of a large block: bytes that have gone in slices; whether the sender asked where to write.
  std::uint64_t moved = 0;
  bool asked = false;

  bool small() const noexcept { return nbytes <= kEager; }
  std::uint64_t next_slice() const noexcept {
    return std::min<std::uint64_t>(kEager, nbytes - moved);
  }
  bool eager() const noexcept { return nbytes == 0 || (small() && bytes != nullptr); }
};

struct Step {
  std::vector<Copy> copies;     // before the moves
  std::vector<Copy> meanwhile;  // while they are under way; between arrays that a CPU has access to
  std::vector<Move> sends, receives;

  void clear() noexcept {
    copies.clear();
    meanwhile.clear();
    sends.clear();
    receives.clear();
  }
};

// A call of this rank. A list of blocks has one for each rank, or one that counts for all.
struct Terms {
  Kind kind{};
  Rank rank = 0, size = 1;
  std::int32_t root = kNoRoot;
  std::vector<Array> arrays{};
  std::vector<Block> outs{}, ins{};  // of a broadcast, its block is in `ins`
  std::optional<Rank> to{}, from{};  // of send_recv
  Reduction reduction{.op = Op::none, .dtype = {}};
  std::shared_ptr<Combiner> by{};  // null: CPUs reduce, in host memory
  std::uint64_t piece = 0;         // most bytes of a block on the way at a time; 0: as it is best
  const Topology* topology = nullptr;

  // Takes another's, and gives its own lists for them.
  void take(Terms& other) noexcept;
};

// Its memory grows to what its calls need, and is used again.
class Schedule {
 public:
  Schedule() = default;
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = default;
  Schedule& operator=(const Schedule&) = default;

  // Bytes of memory that it needs besides the arrays; of the host's, unless a GPU reduces.
  virtual std::uint64_t room() const = 0;
  bool on_host() const noexcept { return by_ == nullptr || by_->on_host(); }
  // The ranks with moves to or from this one.
  const std::vector<Rank>& partners() const noexcept { return partners_; }
  // The labels of the moves have the size and the part only. False: all is done, then and later.
  // arrived: the receives of the step before, which are complete.
  virtual bool next(Step& step, std::span<const Move> arrived) = 0;

  // Comes after the arrays of the call.
  void set_room(Array room) { arrays_.push_back(std::move(room)); }
  Array& array(std::size_t number) { return arrays_.at(number); }
  std::byte* at(const Block& block) const noexcept {
    return arrays_[block.array].bytes + block.begin;
  }

 protected:
  Move move(Rank rank, const Block& block, std::uint64_t whole, std::uint64_t part) const;
  const Array& array_of(const Block& block) const noexcept { return arrays_[block.array]; }

  void set_partners(std::span<const Rank> sources, std::span<const Rank> targets);

  std::vector<Array> arrays_;
  std::vector<Rank> partners_;
  std::shared_ptr<Combiner> by_;  // of a reduction
};

// Null: it has not been registered.
std::shared_ptr<const Memory> memory_of(const Array& array, std::uint64_t begin,
                                        std::uint64_t nbytes);

// Of one call at a time.
class Schedules {
 public:
  // terms: gives the arrays and lists, and takes older ones, whose memory the next call uses.
  // The topology must be known for broadcast and for reductions other than reduce_scatter.
  const std::shared_ptr<Schedule>& begin(Terms& terms);

 private:
  std::shared_ptr<Schedule> movement_, direct_, staged_;
};

}  // namespace zerohop::engine::collective
