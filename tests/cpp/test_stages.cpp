// Reductions in stages among ranks of several hosts, without a network: every rank's moves go to
// the others at once.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/collective/staged_reduction.hpp"

namespace zerohop::engine::collective {
namespace {

using Hosts = std::vector<std::uint32_t>;  // by rank

constexpr DType kInt{kDTypeInt, 64, 1};
constexpr std::uint64_t kSlice = 64;  // bytes: eight elements

Topology topology_of(const Hosts& hosts, const Algorithm& algorithm) {
  return {hosts, {{.algorithm = algorithm}}};
}

// As of a GPU: what is begun is done at the end, and no CPU reaches the blocks.
class LateCombiner : public Combiner {
 public:
  bool on_host() const noexcept override { return false; }
  void begin(const Reduction& reduction, std::byte* out, std::span<const std::byte* const> in,
             std::uint64_t count) override {
    begun_.push_back(
        [=, inputs = std::vector(in.begin(), in.end())] { reduce(reduction, out, inputs, count); });
  }
  void finish() override {
    for (const auto& each : begun_) each();
    begun_.clear();
  }

 private:
  std::vector<std::function<void()>> begun_;
};

template <typename T>
Array array_of(std::vector<T>& values, bool on_host) {
  const Layout layout =
      Layout::bytes(reinterpret_cast<std::uint64_t>(values.data()), values.size() * sizeof(T));
  return {reinterpret_cast<std::byte*>(values.data()),
          std::make_shared<const Memory>(EndpointId{}, layout, nullptr, Memory::Kind{}), on_host};
}

std::byte* place_of(const Move& move) {
  if (move.bytes != nullptr || move.nbytes == 0) return move.bytes;
  REQUIRE(move.memory->layout().nbytes() == move.nbytes);
  return reinterpret_cast<std::byte*>(move.memory->layout().address);
}

// All ranks of one call. Blocks differ by rank and place; the result can hide no block twice.
class Call {
 public:
  Call(const Hosts& hosts, const Algorithm& algorithm, std::size_t count, std::int32_t root,
       bool prefixes = false, bool on_gpus = false)
      : size_(static_cast<Rank>(hosts.size())), count_(count), prefixes_(prefixes) {
    const Topology topology = topology_of(hosts, algorithm);
    ranks_.resize(size_);
    for (Rank rank = 0; rank < size_; ++rank) {
      Member& member = ranks_[rank];
      const bool has_result = root == kNoRoot || root == static_cast<std::int32_t>(rank);
      for (std::size_t at = 0; at < count; ++at) member.from.push_back(value(rank, at));
      member.to.resize(has_result ? count : 0);
      // One rank's arrays are in the host's memory all the same.
      const bool on_host = !on_gpus || rank == size_ / 2;
      const std::uint64_t nbytes = count * sizeof(std::int64_t);
      Terms terms{.kind = prefixes ? Kind::scan : Kind::reduce,
                  .rank = rank,
                  .size = size_,
                  .root = root,
                  .arrays = {array_of(member.from, on_host), array_of(member.to, on_host)},
                  .outs = {},
                  .ins = {{0, 0, nbytes}},
                  .reduction = {.op = Op::sum, .dtype = kInt},
                  .topology = &topology};
      if (has_result) terms.outs = {{1, 0, nbytes}};
      if (!on_host) terms.by = std::make_shared<LateCombiner>();
      member.steps = plan_of(terms);
      member.steps.begin(terms);
      member.room.resize(member.steps.room());
      member.steps.set_room(array_of(member.room, on_host));
    }
  }

  // Whether all came to an end, and had moves to and from their partners only.
  bool run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank rank = 0; rank < size_; ++rank) moved |= advance(rank);
    }
    return sent_.empty() && std::ranges::all_of(ranks_, [](const Member& member) {
             const std::vector<Rank> partners = member.steps.partners();
             return member.done && member.met == std::set<Rank>(partners.begin(), partners.end());
           });
  }

  bool is_right() const {
    for (Rank rank = 0; rank < size_; ++rank) {
      for (std::size_t at = 0; at < ranks_[rank].to.size(); ++at) {
        std::int64_t sum = 0;
        for (Rank other = 0; other < (prefixes_ ? rank + 1 : size_); ++other) {
          sum += value(other, at);
        }
        if (ranks_[rank].to[at] != sum) return false;
      }
      for (std::size_t at = 0; at < count_; ++at) {
        if (ranks_[rank].from[at] != value(rank, at)) return false;
      }
    }
    return true;
  }

 private:
  struct Member {
    StagedReduction steps;
    std::vector<std::int64_t> from, to;
    std::vector<std::byte> room;
    std::vector<Move> receives;
    std::set<Rank> met;
    bool done = false;
  };
  using Key = std::tuple<Rank, Rank, std::uint32_t>;  // from, to, part

  static std::int64_t value(Rank rank, std::size_t at) {
    return (std::int64_t{1} << (3 * rank)) + static_cast<std::int64_t>(at << 32);
  }

  // False: it waits for another rank.
  bool advance(Rank rank) {
    Member& member = ranks_[rank];
    if (member.done) return false;
    for (const Move& move : member.receives) {
      if (!sent_.contains({move.rank, rank, move.label.part})) return false;
    }
    for (Move& move : member.receives) {
      const auto found = sent_.find({move.rank, rank, move.label.part});
      REQUIRE(found->second.size() == move.nbytes);
      if (move.nbytes > 0) std::memcpy(place_of(move), found->second.data(), move.nbytes);
      move.arrived = move.bytes;
      sent_.erase(found);
    }
    const std::vector<Move> arrived = std::move(member.receives);
    Step step;
    member.done = !member.steps.next(step, arrived);
    REQUIRE(step.copies.empty());
    member.receives = step.receives;
    if (member.done) return true;
    for (const Move& move : member.receives) member.met.insert(move.rank);
    for (const Move& move : step.sends) {
      member.met.insert(move.rank);
      REQUIRE(move.nbytes <= kSlice);
      const bool is_new = sent_
                              .try_emplace({rank, move.rank, move.label.part}, place_of(move),
                                           place_of(move) + move.nbytes)
                              .second;
      REQUIRE(is_new);
    }
    return true;
  }

  const Rank size_;
  const std::size_t count_;
  const bool prefixes_;
  std::vector<Member> ranks_;
  std::map<Key, std::vector<std::byte>> sent_;
};

const std::vector<Hosts> kLayouts{{0},
                                  {0, 0},
                                  {0, 1},
                                  {0, 0, 0},
                                  {0, 1, 2},
                                  {0, 0, 1},
                                  {0, 1, 1},
                                  {0, 0, 1, 1},
                                  {0, 1, 0, 1},
                                  {0, 1, 2, 3, 4},
                                  {0, 0, 0, 1, 1, 2},
                                  {0, 0, 0, 1, 1, 1},
                                  {0, 1, 2, 3, 4, 5, 6},
                                  {7, 7, 5, 5, 3, 3, 1, 1, 9, 9}};

template <typename Each>
void for_all(Each&& each) {
  for (const Hosts& hosts : kLayouts) {
    for (unsigned bits = 0; bits < 8; ++bits) {
      const Algorithm algorithm{.by_host = (bits & 1) != 0,
                                .pairs = (bits & 2) != 0,
                                .whole = (bits & 4) != 0,
                                .slice = kSlice};
      for (const std::size_t count : {0, 1, 7, 8, 9, 61, 64, 333}) each(hosts, algorithm, count);
    }
  }
}

TEST_CASE("every rank gets the sum of all blocks, whatever the hosts and the algorithm") {
  for_all([](const Hosts& hosts, const Algorithm& algorithm, std::size_t count) {
    CAPTURE(hosts.size());
    CAPTURE(algorithm.by_host);
    CAPTURE(algorithm.pairs);
    CAPTURE(algorithm.whole);
    CAPTURE(count);
    Call call(hosts, algorithm, count, kNoRoot);
    REQUIRE(call.run());
    REQUIRE(call.is_right());
  });
}

TEST_CASE("a root gets the sum of all blocks, and no other rank writes to its arrays") {
  for_all([](const Hosts& hosts, const Algorithm& algorithm, std::size_t count) {
    for (std::size_t root = 0; root < hosts.size(); ++root) {
      CAPTURE(hosts.size());
      CAPTURE(root);
      Call call(hosts, algorithm, count, static_cast<std::int32_t>(root));
      REQUIRE(call.run());
      REQUIRE(call.is_right());
    }
  });
}

TEST_CASE("a scan gives each rank the sum of those up to it") {
  for_all([](const Hosts& hosts, const Algorithm& algorithm, std::size_t count) {
    Call call(hosts, algorithm, count, kNoRoot, /*prefixes=*/true);
    REQUIRE(call.run());
    REQUIRE(call.is_right());
  });
}

TEST_CASE("the same in the memory of GPUs, whose kernels reduce later") {
  for_all([](const Hosts& hosts, const Algorithm& algorithm, std::size_t count) {
    const auto root = static_cast<std::int32_t>(count % hosts.size());
    for (const std::int32_t to : {kNoRoot, root}) {
      for (const bool prefixes : {false, true}) {
        if (prefixes && to != kNoRoot) continue;
        CAPTURE(hosts.size());
        CAPTURE(count);
        Call call(hosts, algorithm, count, to, prefixes, /*on_gpus=*/true);
        REQUIRE(call.run());
        REQUIRE(call.is_right());
      }
    }
  });
}

TEST_CASE("the first row of a table that applies counts, and there must be one") {
  const Algorithm first{.by_host = true}, second{.pairs = true}, third{.whole = true};
  const std::vector<AlgorithmRow> rows{{.hosts = 1, .algorithm = first},
                                       {.ranks = 3, .nbytes = 100, .algorithm = second},
                                       {.algorithm = third}};
  CHECK(Topology(Hosts{0, 0}, rows).algorithm(1) == first);
  CHECK(Topology(Hosts{0, 1}, rows).algorithm(100) == second);
  CHECK(Topology(Hosts{0, 1}, rows).algorithm(101) == third);
  CHECK(Topology(Hosts{0, 1, 2, 3}, rows).algorithm(1) == third);
  CHECK_THROWS_AS(Topology(Hosts{0, 1}, {rows[0], rows[1]}), std::invalid_argument);
}

TEST_CASE("whole blocks go to all at once if that takes one stage") {
  const Algorithm whole{.by_host = true, .pairs = true, .whole = true};
  const auto is_direct = [&](const Hosts& hosts, std::uint64_t nbytes) {
    return topology_of(hosts, whole).is_direct(whole, nbytes);
  };
  CHECK(is_direct({0, 0, 0}, kEager));
  CHECK(is_direct({0, 1}, 0));
  CHECK_FALSE(is_direct({0, 1, 2}, 0));
  CHECK_FALSE(is_direct({0, 0, 1, 1}, 0));
  CHECK_FALSE(is_direct({0, 0}, kEager + 1));
  const Algorithm flat{.pairs = true, .whole = true};
  CHECK_FALSE(topology_of({0, 0, 1, 1}, flat).is_direct(flat, 0));
  CHECK(topology_of({0, 0, 0}, flat).is_direct(flat, 0));
  CHECK(topology_of({0, 1}, flat).is_direct(flat, 0));
}

TEST_CASE("the room follows the array") {
  const std::uint64_t nbytes = std::uint64_t{3} << 20;
  Hosts hosts(1000);
  std::iota(hosts.begin(), hosts.end(), 0);
  for (const std::uint64_t slice : {std::uint64_t{kEager}, kMostSlice}) {
    const Topology topology = topology_of(hosts, {.slice = slice});
    Terms terms{.kind = Kind::all_reduce,
                .size = 1000,
                .arrays = std::vector<Array>(1),
                .outs = {{0, 0, nbytes}},
                .ins = {{0, 0, nbytes}},
                .reduction = {.op = Op::sum, .dtype = kInt},
                .topology = &topology};
    StagedReduction plan = plan_of(terms);
    plan.begin(terms);
    CHECK(plan.room() < 2 * nbytes);
    CHECK(plan.chunk() >= nbytes);
  }
}

}  // namespace
}  // namespace zerohop::engine::collective
