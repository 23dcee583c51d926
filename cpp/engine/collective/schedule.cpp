#include "engine/collective/schedule.hpp"

#include <algorithm>
#include <utility>

#include "engine/collective/direct_reduction.hpp"
#include "engine/collective/movement.hpp"
#include "engine/collective/staged_reduction.hpp"

namespace zerohop::engine::collective {
namespace {

// Whether blocks go at once to all ranks that combine them.
bool is_direct(const Terms& terms) {
  if (terms.kind == Kind::reduce_scatter) return true;
  const std::uint64_t nbytes = terms.ins.front().nbytes;
  if (terms.kind == Kind::scan) return terms.size <= kFew && nbytes <= kEager;
  return terms.topology->is_direct(terms.topology->algorithm(nbytes), nbytes);
}

// The one of an earlier call, if no Exchange has it any more.
template <typename Kept>
Kept& kept(std::shared_ptr<Schedule>& schedule) {
  if (!schedule || schedule.use_count() > 1) schedule = std::make_shared<Kept>();
  return static_cast<Kept&>(*schedule);
}

}  // namespace

// In a small call, to swap whole objects takes as long as the rest.
void Terms::take(Terms& other) noexcept {
  kind = other.kind;
  rank = other.rank;
  size = other.size;
  root = other.root;
  arrays.swap(other.arrays);
  outs.swap(other.outs);
  ins.swap(other.ins);
  to = other.to;
  from = other.from;
  reduction = other.reduction;
  by = std::move(other.by);
  piece = other.piece;
  topology = other.topology;
}

std::shared_ptr<const Memory> memory_of(const Array& array, std::uint64_t begin,
                                        std::uint64_t nbytes) {
  if (!array.memory) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(array.bytes) + begin;
  return std::make_shared<const Memory>(array.memory->range(address, nbytes));
}

// Small blocks have their memory, too: the other end may be on a GPU.
Move Schedule::move(Rank rank, const Block& block, std::uint64_t whole, std::uint64_t part) const {
  const Array& array = array_of(block);
  Move made;
  made.rank = rank;
  made.nbytes = block.nbytes;
  made.array = block.array;
  made.begin = block.begin;
  made.label.nbytes = whole;
  made.label.part = static_cast<std::uint32_t>(part);
  if (array.on_host) made.bytes = at(block);
  if (block.nbytes > 0) made.memory = memory_of(array, block.begin, block.nbytes);
  return made;
}

void Schedule::set_partners(std::span<const Rank> sources, std::span<const Rank> targets) {
  partners_.assign(sources.begin(), sources.end());
  for (const Rank rank : targets) {
    if (std::ranges::find(sources, rank) == sources.end()) partners_.push_back(rank);
  }
}

const std::shared_ptr<Schedule>& Schedules::begin(Terms& terms) {
  if (terms.reduction.op == Op::none) {
    kept<Movement>(movement_).begin(terms);
    return movement_;
  }
  if (is_direct(terms)) {
    kept<DirectReduction>(direct_).begin(terms);
    return direct_;
  }
  auto& staged = kept<StagedReduction>(staged_);
  staged = plan_of(terms);
  if (staged.slice() <= kEager) terms.by = nullptr;  // in host memory they come with their headers
  staged.begin(terms);
  return staged_;
}

}  // namespace zerohop::engine::collective
