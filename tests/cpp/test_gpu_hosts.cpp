// Reductions in stages between two ranks whose arrays are in the memory of a nonexistent GPU, or of
// one of them: slices arrive there by every route, and kernels reduce them.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collective_lines.hpp"
#include "engine/collective/combiner.hpp"
#include "engine/collective/exchange.hpp"
#include "engine/collective/staged_reduction.hpp"
#include "gpu_couple.hpp"

namespace zerohop::engine::collective {
namespace {

using testing::CopiedCouple;
using testing::GpuCouple;
using testing::soon;
using testing::StagedCouple;

using Numbers = std::vector<std::int32_t>;
constexpr DType kInt{kDTypeInt, 32, 1};
constexpr std::uint64_t kSlice = 2 * kEager;
constexpr Deadline::Seconds kAtOnce{0};

Numbers numbers(Rank rank, std::size_t count) {
  Numbers made(count);
  for (std::size_t at = 0; at < count; ++at) {
    made[at] = static_cast<std::int32_t>((rank + 3) * 1'000'003 * at + rank);
  }
  return made;
}
std::vector<std::byte> bytes_of(const Numbers& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

struct Given {
  Algorithm algorithm;
  std::size_t count = 0;
  std::int32_t root = kNoRoot;
  bool in_place = false;
};

// One rank of two. It does what it can at once.
class Side {
 public:
  Side(GpuCouple& both, Rank rank, bool on_gpu, const Given& given)
      : both_(both),
        endpoint_(rank == 0 ? both.left : both.right),
        rank_(rank),
        nbytes_(given.count * sizeof(std::int32_t)),
        lines_(testing::lines_of(endpoint_, rank, rank == 0 ? both.to_right : both.to_left)) {
    const std::vector<std::uint32_t> hosts{0, 1};
    const Topology topology(hosts, {{.algorithm = given.algorithm}});
    const bool has_result = given.root == kNoRoot || given.root == static_cast<int>(rank);
    from_ = memory(nbytes_, on_gpu);
    both.put(*from_, bytes_of(numbers(rank, given.count)));
    if (has_result) to_ = given.in_place ? from_ : memory(nbytes_, on_gpu);
    Terms terms{.kind = given.root == kNoRoot ? Kind::all_reduce : Kind::reduce,
                .rank = rank,
                .size = 2,
                .root = given.root,
                .arrays = {array(from_, on_gpu), array(to_, on_gpu)},
                .ins = {{0, 0, nbytes_}},
                .reduction = {.op = Op::sum, .dtype = kInt},
                .topology = &topology};
    if (has_result) terms.outs = {{1, 0, nbytes_}};
    if (on_gpu) {
      terms.by = std::make_shared<GpuCombiner>(
          std::make_shared<gpu::Reducer>(from_->registration()->device), soon());
    }
    const auto schedule = Schedules().begin(terms);
    room_ = memory(schedule->room(), on_gpu);
    schedule->set_room(array(room_, on_gpu));
    Labels labels;
    labels.send.kind = labels.receive.kind = Kind::all_reduce;
    labels.send.number = labels.receive.number = 1;
    exchange_.begin(schedule, labels, /*of_all=*/true);
  }

  void meet(const Side& other) {
    lines_->at(1 - rank_).meet(other.lines_->at(rank_).inbox().remote(), false, false);
  }

  // Whether it is done.
  bool advance() {
    const auto found = exchange_.run(kAtOnce, soon());
    if (found.news == Exchange::News::complete) return true;
    if (found.news == Exchange::News::payload) fill(*found.move, found.payload);
    const bool goes_on = found.news == Exchange::News::quiet ||
                         found.news == Exchange::News::payload ||
                         found.news == Exchange::News::under_way;
    REQUIRE(goes_on);
    return false;
  }

  std::optional<std::vector<std::byte>> result() const {
    if (!to_) return std::nullopt;
    return both_.get(*to_);
  }

 private:
  using Kept = std::shared_ptr<const Memory>;

  Kept memory(std::uint64_t nbytes, bool on_gpu) {
    const std::vector shape{static_cast<std::int64_t>(nbytes)};
    return std::make_shared<const Memory>(on_gpu ? both_.array(endpoint_, shape)
                                                 : testing::host_array(endpoint_, shape));
  }
  static Array array(const Kept& memory, bool on_gpu) {
    if (!memory) return {};
    return {reinterpret_cast<std::byte*>(memory->layout().address), memory, !on_gpu};
  }
  void fill(const Move& move, const std::vector<std::byte>& payload) {
    both_.cuda.copies.write(move.memory->layout().address, payload);
  }

  GpuCouple& both_;
  Endpoint& endpoint_;
  const Rank rank_;
  const std::uint64_t nbytes_;
  const std::shared_ptr<Lines> lines_;
  Kept from_, to_, room_;
  Exchange exchange_{lines_};
};

void check(GpuCouple& both, std::pair<bool, bool> on_gpu, const Given& given) {
  Side one(both, 0, on_gpu.first, given), other(both, 1, on_gpu.second, given);
  one.meet(other);
  other.meet(one);
  const Deadline deadline = soon();
  for (bool first = false, second = false; !first || !second;) {
    REQUIRE_FALSE(deadline.passed());
    first = first || one.advance();
    second = second || other.advance();
  }
  Numbers sum = numbers(0, given.count);
  const Numbers more = numbers(1, given.count);
  for (std::size_t at = 0; at < sum.size(); ++at) {
    sum[at] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum[at]) +
                                        static_cast<std::uint32_t>(more[at]));
  }
  const bool first_has = given.root != 1, second_has = given.root != 0;
  REQUIRE(one.result().has_value() == first_has);
  REQUIRE(other.result().has_value() == second_has);
  if (first_has) REQUIRE(*one.result() == bytes_of(sum));
  if (second_has) REQUIRE(*other.result() == bytes_of(sum));
}

// The last piece is small: to or from a host its slices go along with their headers.
constexpr std::size_t kCount = kSlice / 2 + 8001;

TEST_CASE_TEMPLATE("slices of GPUs are reduced where they arrive, whatever the route", Both,
                   GpuCouple, StagedCouple, CopiedCouple) {
  for (const bool pairs : {false, true}) {
    for (const bool whole : {false, true}) {
      CAPTURE(pairs);
      CAPTURE(whole);
      const Algorithm algorithm{.by_host = true, .pairs = pairs, .whole = whole, .slice = kSlice};
      Both both;
      check(both, {true, true}, {algorithm, kCount, kNoRoot, /*in_place=*/pairs});
    }
  }
  Both both;
  check(both, {true, true}, {{.slice = kSlice}, kCount, 1});
}

TEST_CASE_TEMPLATE("one rank has its arrays on a GPU, and the other in the host's memory", Both,
                   StagedCouple, CopiedCouple) {
  for (const bool first : {true, false}) {
    for (const std::int32_t root : {kNoRoot, 0}) {
      CAPTURE(first);
      CAPTURE(root);
      Both both;
      check(both, {first, !first}, {{.slice = kSlice}, kCount, root, root == kNoRoot});
    }
  }
}

}  // namespace
}  // namespace zerohop::engine::collective
