// How a reduction goes among the ranks of some hosts: in stages, in each of which groups of ranks
// combine slices of their blocks, or pass combined slices on.
//
// By host: the ranks of each host combine theirs first, a slice each; then the n-th ranks of all
// hosts, their lane, combine what they have. Within a group every rank combines a slice, and passes
// it on to all (Rabenseifner: Optimization of collective reduction operations, 2004, with direct
// exchanges), or pairs do so at growing distances (halving and doubling, as he has it; whole
// arrays: recursive doubling).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/collective/message.hpp"

namespace zerohop::engine::collective {

constexpr Rank kFew = 8;  // so many ranks exchange small blocks with all others at once

struct Algorithm {
  bool by_host = false;          // else as if each rank had a host of its own
  bool pairs = false;            // across hosts
  bool whole = false;            // arrays are not sliced
  std::uint64_t slice = kEager;  // most bytes; more than kEager are written to registered memory

  friend bool operator==(const Algorithm&, const Algorithm&) = default;
};

// Of a table: for up to so many hosts, ranks, and bytes.
struct AlgorithmRow {
  std::uint64_t hosts = kAnyBytes, ranks = kAnyBytes, nbytes = kAnyBytes;
  Algorithm algorithm;
};

struct Stage {
  std::vector<Rank> from;  // in the order in which their blocks are combined
  std::vector<Rank> to;
  // Combines: each rank of `from` sends slice i to to[i], or its whole block to all. Else from[i]
  // passes on slice i, or from[0] all of it, to the ranks of `to`.
  bool combines = false;
  bool sliced = true;
};

struct Stages {
  std::vector<Stage> stages;  // as many for every rank; empty: it does nothing
  std::size_t shares = 1;     // into which the first one divides a block
};

// Where the ranks of a World are, and the algorithms of its reductions. The same on all ranks.
class Topology {
 public:
  // host_of: by rank, any number for each host. table: the first row that applies counts. Throws
  // std::invalid_argument if there are sizes for which none does.
  Topology(std::span<const std::uint32_t> host_of, std::vector<AlgorithmRow> table);

  Rank size() const noexcept { return size_; }
  std::size_t hosts() const noexcept { return hosts_.size(); }
  // The ranks of each host.
  const std::vector<std::vector<Rank>>& ranks_by_host() const noexcept { return hosts_; }
  const Algorithm& algorithm(std::uint64_t nbytes) const noexcept;
  // Whether whole blocks go to all ranks that need them at once.
  bool is_direct(const Algorithm& algorithm, std::uint64_t nbytes) const noexcept;
  // As seen by one rank. root: of a reduce; kNoRoot: all ranks get the result.
  Stages stages(const Algorithm& algorithm, Rank rank, std::int32_t root) const;

 private:
  using Group = std::vector<Rank>;

  std::vector<Group> hosts_;  // by their first ranks
  std::vector<Group> apart_;  // a host for each rank
  std::vector<AlgorithmRow> rows_;
  Rank size_;
};

}  // namespace zerohop::engine::collective
