// Reductions in which blocks go at once to the ranks that combine them, and whole arrays as the
// table has it. test_stages.cpp has the stages.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "all_ranks.hpp"
#include "engine/collective/combiner.hpp"

namespace zerohop::engine::collective {
namespace {

constexpr DType kInt{kDTypeInt, 64, 1};

// As of a GPU: no CPU reaches the blocks.
class FarCombiner : public HostCombiner {
 public:
  bool on_host() const noexcept override { return false; }
};

std::int64_t value(Rank from, Rank to, std::size_t at) {
  return (std::int64_t{1} << (3 * from)) * (1 + static_cast<std::int64_t>((to + at) % 5));
}

Bytes numbers(std::size_t count, auto&& each) {
  Bytes made(count * sizeof(std::int64_t));
  for (std::size_t at = 0; at < count; ++at) {
    const std::int64_t number = each(at);
    std::memcpy(&made[at * sizeof number], &number, sizeof number);
  }
  return made;
}

// who: reduces on a GPU (on), or has its arrays there, which CPUs reduce (through).
enum class Who { nobody, on, through };

void give_reduction(Member& member, Kind kind, Rank rank, Rank size, Who who) {
  member.terms = {.kind = kind, .rank = rank, .size = size};
  member.terms.reduction = {.op = Op::sum, .dtype = kInt};
  if (who == Who::on) member.terms.by = std::make_shared<FarCombiner>();
}

TEST_CASE("every rank reduces its part of all arrays, in pieces") {
  for_all([](Rank size, Size bytes, Rank far) {
    const auto count = [&](Rank to) { return bytes(to, to) / 8; };
    for (const Who who : {Who::on, Who::through}) {
      AllRanks call(size);
      for (Rank rank = 0; rank < size; ++rank) {
        Member& member = call.ranks[rank];
        const bool is_far = rank == far;
        give_reduction(member, Kind::reduce_scatter, rank, size, is_far ? who : Who::nobody);
        member.terms.piece = 1;  // EAGER
        for (Rank to = 0; to < size; ++to) {
          const auto of = [&](std::size_t at) { return value(rank, to, at); };
          member.terms.ins.push_back(member.array(numbers(count(to), of), !is_far));
        }
        member.terms.outs = {member.array(Bytes(8 * count(rank), kPoison), !is_far)};
      }
      REQUIRE(call.run());
      for (Rank rank = 0; rank < size; ++rank) {
        check(call.ranks[rank], {size}, numbers(count(rank), [&](std::size_t at) {
                std::int64_t sum = 0;
                for (Rank from = 0; from < size; ++from) sum += value(from, rank, at);
                return sum;
              }));
      }
    }
  });
}

TEST_CASE("whole arrays are reduced at once or in stages, on one rank, on all, or up to each") {
  for_all([](Rank size, Size bytes, Rank far) {
    const std::size_t count = bytes(1, 1) / 8;
    const Algorithm slices{.slice = far == size ? kEager : 2 * kEager};
    const Topology topology(
        Hosts(size), {{.nbytes = kEager, .algorithm = {.whole = true}}, {.algorithm = slices}});
    for (const Kind kind : {Kind::all_reduce, Kind::reduce, Kind::scan}) {
      for (const Who who : {Who::on, Who::through}) {
        AllRanks call(size);
        const Rank root = size - 1;
        for (Rank rank = 0; rank < size; ++rank) {
          Member& member = call.ranks[rank];
          const bool is_far = rank == far;
          give_reduction(member, kind, rank, size, is_far ? who : Who::nobody);
          member.terms.topology = &topology;
          if (kind == Kind::reduce) member.terms.root = static_cast<std::int32_t>(root);
          const auto of = [&](std::size_t at) { return value(rank, 0, at); };
          member.terms.ins = {member.array(numbers(count, of), !is_far)};
          if (kind == Kind::reduce && rank != root) continue;
          member.terms.outs = {member.array(Bytes(8 * count, kPoison), !is_far)};
        }
        REQUIRE(call.run());
        for (Rank rank = 0; rank < size; ++rank) {
          if (kind == Kind::reduce && rank != root) continue;
          const Rank end = kind == Kind::scan ? rank + 1 : size;
          check(call.ranks[rank], {1}, numbers(count, [&](std::size_t at) {
                  std::int64_t sum = 0;
                  for (Rank from = 0; from < end; ++from) sum += value(from, 0, at);
                  return sum;
                }));
        }
      }
    }
  });
}

}  // namespace
}  // namespace zerohop::engine::collective
