#include "engine/collective/direct_reduction.hpp"

#include <algorithm>
#include <utility>

namespace zerohop::engine::collective {
namespace {

constexpr std::uint64_t kOnTheWay = std::uint64_t{8} << 20;  // bytes of all ranks; they need room
constexpr std::uint64_t kLongestElement = 16;

std::uint64_t in_elements(std::uint64_t nbytes) {
  return (nbytes + kLongestElement - 1) / kLongestElement * kLongestElement;
}

}  // namespace

void DirectReduction::begin(Terms& terms) {
  terms_.take(terms);
  arrays_.swap(terms_.arrays);
  step_ = 0;
  sources_.clear();
  targets_.clear();
  by_ = terms_.by ? terms_.by : host_combiner();
  const Rank rank = terms_.rank, size = terms_.size, others = std::max<Rank>(size - 1, 1);
  for (Rank step = 1; step < size; ++step) {
    const Rank other = (rank + step) % size;
    const bool needs = terms_.kind == Kind::scan     ? other > rank
                       : terms_.kind == Kind::reduce ? other == static_cast<Rank>(terms_.root)
                                                     : true;
    if (needs) targets_.push_back(other);
    if (reduces() && (terms_.kind != Kind::scan || other < rank)) sources_.push_back(other);
  }
  set_partners(sources_, targets_);
  const std::uint64_t on_the_way = terms_.piece > 0 ? terms_.piece : kOnTheWay;
  piece_ = std::max<std::uint64_t>(kEager, on_the_way / others / kLongestElement * kLongestElement);
  std::uint64_t most = 0;
  for (const Block& block : terms_.ins) most = std::max(most, block.nbytes);
  pieces_ = std::max<std::uint64_t>((most + piece_ - 1) / piece_, 1);
  const bool by_cpus = by_->on_host();
  own_in_room_ = reduces() && by_cpus && !array_of(block_for(rank)).on_host;
  result_in_room_ = reduces() && by_cpus && !array_of(terms_.outs.front()).on_host;
}

// Slots for the blocks of others, this rank's, and the result.
std::uint64_t DirectReduction::room() const {
  if (!reduces()) return 0;
  const std::size_t slots = sources_.size() + (own_in_room_ ? 1 : 0) + (result_in_room_ ? 1 : 0);
  return slots * in_elements(std::min(piece_, terms_.outs.front().nbytes));
}

const Block& DirectReduction::block_for(Rank rank) const noexcept {
  return terms_.ins.size() > 1 ? terms_.ins[rank] : terms_.ins.front();
}

bool DirectReduction::has(const Block& block, std::uint64_t number) const noexcept {
  return number == 0 || number * piece_ < block.nbytes;
}

Block DirectReduction::piece(const Block& block, std::uint64_t number) const noexcept {
  const std::uint64_t begin = number * piece_;
  return block.part(begin, std::min(piece_, block.nbytes - begin));
}

Block DirectReduction::slot(std::size_t number, std::uint64_t nbytes) const noexcept {
  const std::uint64_t each = in_elements(std::min(piece_, terms_.outs.front().nbytes));
  return {arrays_.size() - 1, number * each, nbytes};
}

bool DirectReduction::next(Step& step, std::span<const Move> arrived) {
  step.clear();
  const std::uint64_t number = step_++;
  if (number > 0 && reduces() && has(terms_.outs.front(), number - 1)) {
    combine(number - 1, arrived);
    if (result_in_room_) {
      const Block result = piece(terms_.outs.front(), number - 1);
      const std::size_t last = sources_.size() + (own_in_room_ ? 1 : 0);
      step.copies.push_back({result, slot(last, result.nbytes)});
    }
  }
  if (number >= pieces_) return !step.copies.empty();
  for (const Rank rank : targets_) {
    const Block& block = block_for(rank);
    if (!has(block, number)) continue;
    step.sends.push_back(move(rank, piece(block, number), block.nbytes, number));
  }
  if (!reduces() || !has(terms_.outs.front(), number)) return true;
  const std::uint64_t nbytes = piece(terms_.outs.front(), number).nbytes;
  if (own_in_room_) {
    step.copies.push_back({slot(sources_.size(), nbytes), piece(block_for(terms_.rank), number)});
  }
  for (std::size_t at = 0; at < sources_.size(); ++at) {
    const Block taken = slot(at, nbytes);
    step.receives.push_back(move(sources_[at], taken, terms_.outs.front().nbytes, number));
    step.receives.back().may_stay = true;
  }
  return true;
}

void DirectReduction::combine(std::uint64_t number, std::span<const Move> arrived) {
  const Block result = piece(terms_.outs.front(), number);
  if (result.nbytes == 0) return;
  const Block own =
      own_in_room_ ? slot(sources_.size(), result.nbytes) : piece(block_for(terms_.rank), number);
  inputs_.assign(terms_.size, nullptr);
  inputs_[terms_.rank] = at(own);
  for (std::size_t each = 0; each < sources_.size(); ++each) {
    inputs_[sources_[each]] = at(slot(each, result.nbytes));
  }
  for (const Move& each : arrived) {
    if (each.arrived != nullptr) inputs_[each.rank] = each.arrived;
  }
  std::erase(inputs_, nullptr);
  const std::size_t last = sources_.size() + (own_in_room_ ? 1 : 0);
  std::byte* const out = at(result_in_room_ ? slot(last, result.nbytes) : result);
  by_->begin(terms_.reduction, out, inputs_, result.nbytes / terms_.reduction.dtype.itemsize());
  by_->finish();
}

}  // namespace zerohop::engine::collective
