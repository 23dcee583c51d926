#include "engine/collective/staged_reduction.hpp"

#include <algorithm>
#include <utility>

namespace zerohop::engine::collective {
namespace {

// The pipeline empties after each chunk, which takes as many steps as there are stages.
constexpr std::uint64_t kChunk = std::uint64_t{4} << 20;
constexpr std::uint64_t kWrittenChunk = kMostSlice;

// Before the last stage: what remains to be done with the result is done once.
Op partial(Op op) noexcept { return op == Op::avg || op == Op::premul_sum ? Op::sum : op; }

bool has(std::span<const Rank> group, Rank rank) {
  return std::ranges::find(group, rank) != group.end();
}

// A scan is flat.
Algorithm algorithm_of(const Terms& terms) {
  const Algorithm found = terms.topology->algorithm(terms.ins.front().nbytes);
  return terms.kind == Kind::scan ? Algorithm{.slice = found.slice} : found;
}

}  // namespace

StagedReduction plan_of(const Terms& terms) {
  const Algorithm algorithm = algorithm_of(terms);
  return {{.rank = terms.rank,
           .size = terms.size,
           .slice = algorithm.slice,
           .nbytes = terms.ins.front().nbytes,
           .has_result = !terms.outs.empty(),
           .prefixes = terms.kind == Kind::scan,
           .reduction = terms.reduction},
          terms.topology->stages(algorithm, terms.rank, terms.root)};
}

StagedReduction::StagedReduction(const Shape& shape, Stages stages) : shape_(shape) {
  // No more than a share of the array, to whole elements: each has up to 16 bytes.
  shape_.slice = std::min(shape.slice, (shape.nbytes / stages.shares / 16 + 1) * 16);
  const bool written = shape_.slice > kEager;
  piece_most_ = stages.shares * shape_.slice;
  const std::uint64_t most = written ? kWrittenChunk : kChunk;
  chunk_most_ = std::max<std::uint64_t>(most / piece_most_, 1) * piece_most_;
  // The receiver of a slice that is written must be there at the same time.
  lead_ = !written && shape.nbytes > piece_most_ ? 1 : 0;
  bool combined = false;
  std::size_t last = 0;
  home_ = stages.stages.size();
  for (Stage& stage : stages.stages) {
    Part part{.stage = std::move(stage)};
    const auto find = [&](const std::vector<Rank>& group, std::size_t& at) {
      const auto found = std::ranges::find(group, shape.rank);
      at = static_cast<std::size_t>(found - group.begin());
      return found != group.end();
    };
    part.in_from = find(part.stage.from, part.at_from);
    part.in_to = find(part.stage.to, part.at_to);
    part.first = !combined;
    part.slot = slots_;
    if (part.stage.combines) {
      last = parts_.size();
      if (part.in_to) {
        if (!combined) home_ = parts_.size();
        combined = true;
        slots_ += part.stage.from.size() - 1;
      }
    }
    parts_.push_back(std::move(part));
  }
  parts_[last].last = true;
  if (shape.prefixes) {
    results_ = shape.size;
  } else if (!shape.has_result) {
    results_ = (1 + lead_) * parts_.size() + 1;  // pieces under way
  }
  full_ = ranges_of(piece_most_);
  find_partners();
}

void StagedReduction::find_partners() {
  const auto add = [&](std::span<const Rank> ranks) {
    for (const Rank rank : ranks) {
      if (rank != shape_.rank && !has(partners_, rank)) partners_.push_back(rank);
    }
  };
  for (const Part& part : parts_) {
    const std::span<const Rank> from = part.stage.from, to = part.stage.to;
    if (part.stage.combines || part.stage.sliced) {
      if (part.in_from) add(to);
      if (part.in_to) add(from);
    } else if (part.in_from && part.at_from == 0) {
      for (const Rank& rank : to) {
        if (!has(from, rank)) add({&rank, 1});
      }
    } else if (part.in_to && !part.in_from) {
      add(from.first(1));
    }
  }
}

std::uint64_t StagedReduction::room() const {
  const std::uint64_t chunk = through_room_ ? std::min(chunk_most_, shape_.nbytes) : 0;
  return (slots_ + results_) * shape_.slice + chunk;
}

void StagedReduction::begin(Terms& terms) {
  std::swap(arrays_, terms.arrays);
  by_ = terms.by ? terms.by : host_combiner();
  from_ = terms.ins.front();
  if (shape_.has_result) to_ = terms.outs.front();
  const bool on_host = array_of(from_).on_host && (!shape_.has_result || array_of(to_).on_host);
  through_room_ = by_->on_host() && !on_host;
  begin_chunk(0);
}

// An empty array has one empty piece.
void StagedReduction::begin_chunk(std::uint64_t begin) {
  chunk_ = begin;
  chunk_nbytes_ = std::min(chunk_most_, shape_.nbytes - begin);
  pieces_ = std::max<std::uint64_t>((chunk_nbytes_ + piece_most_ - 1) / piece_most_, 1);
  rest_ = ranges_of(chunk_nbytes_ - (pieces_ - 1) * piece_most_);
  step_ = 0;
}

// lag: steps since the piece was begun; nullopt: there was none then.
std::optional<std::uint64_t> StagedReduction::piece_at(std::uint64_t lag) const noexcept {
  if (step_ < lag || step_ - lag >= pieces_) return std::nullopt;
  return step_ - lag;
}

const StagedReduction::AllRanges& StagedReduction::ranges(std::uint64_t piece) const noexcept {
  return piece + 1 == pieces_ ? rest_ : full_;
}

// Those of a piece. Stages that combine slices narrow the range; those that pass them on go back.
StagedReduction::AllRanges StagedReduction::ranges_of(std::uint64_t nbytes) const {
  AllRanges found;
  std::vector<Range> before;
  Range now{0, nbytes};
  for (const Part& part : parts_) {
    const auto& [from, to, combines, sliced] = part.stage;
    Ranges made{now, now};
    if (sliced && (part.in_from || part.in_to)) {
      if (combines) {
        before.push_back(now);
        now = part.in_to ? slice(now, part.at_to, to.size()) : Range{now.begin, 0};
        made.own = now;
      } else {
        made.shared = before.back();
        before.pop_back();
        now = made.shared;
      }
    }
    found.push_back(made);
  }
  return found;
}

// Shared evenly by elements: the first slices have one more.
StagedReduction::Range StagedReduction::slice(const Range& range, std::size_t number,
                                              std::size_t count) const noexcept {
  const std::uint64_t itemsize = shape_.reduction.dtype.itemsize();
  const std::uint64_t elements = range.nbytes / itemsize;
  const std::uint64_t each = elements / count, more = elements % count;
  return {range.begin + (number * each + std::min<std::uint64_t>(number, more)) * itemsize,
          (each + (number < more ? 1 : 0)) * itemsize};
}

Block StagedReduction::chunk_in_room() const noexcept {
  return {arrays_.size() - 1, (slots_ + results_) * shape_.slice, chunk_nbytes_};
}

Block StagedReduction::in(const Block& array, std::uint64_t piece,
                          std::uint64_t begin) const noexcept {
  const Block chunk = through_room_ ? chunk_in_room() : array.part(chunk_, chunk_nbytes_);
  return chunk.part(piece * piece_most_ + begin, 0);
}

Block StagedReduction::slot(std::size_t number) const noexcept {
  return {arrays_.size() - 1, number * shape_.slice, 0};
}

// Where this rank has that part of the result, or keeps it until it has passed it on.
Block StagedReduction::result(std::uint64_t piece, std::uint64_t begin) const noexcept {
  if (shape_.has_result) return in(to_, piece, begin);
  return slot(slots_ + piece % results_).part(begin - ranges(piece)[home_].own.begin, 0);
}

// Of the first inputs.
void StagedReduction::reduce_into(std::byte* out, std::size_t count, std::uint64_t nbytes,
                                  bool last) {
  Reduction reduction = shape_.reduction;
  if (!last) reduction.op = partial(reduction.op);
  reduction.ranks = shape_.size;
  by_->begin(reduction, out, std::span(inputs_).first(count), nbytes / reduction.dtype.itemsize());
}

void StagedReduction::combine(std::size_t stage, std::uint64_t piece,
                              std::span<const Move> arrived) {
  const Part& part = parts_[stage];
  const Range own = ranges(piece)[stage].own;
  const Block mine = part.first ? in(from_, piece, own.begin) : result(piece, own.begin);
  inputs_.clear();
  std::size_t number = part.slot;
  for (const Rank rank : part.stage.from) {
    inputs_.push_back(at(rank == shape_.rank ? mine : slot(number++)));
  }
  for (const Move& each : arrived) {
    if (each.arrived == nullptr || each.label.part != part_of(stage, piece)) continue;
    const auto place = std::ranges::find(part.stage.from, each.rank) - part.stage.from.begin();
    inputs_[static_cast<std::size_t>(place)] = each.arrived;
  }
  if (!shape_.prefixes) {
    reduce_into(at(result(piece, own.begin)), inputs_.size(), own.nbytes, part.last);
    return;
  }
  for (Rank rank = 0; rank < shape_.size; ++rank) {
    if (rank == shape_.rank) continue;
    reduce_into(at(slot(slots_ + rank)), rank + 1, own.nbytes, part.last);
  }
  // Last, as the result may take the place of an input.
  reduce_into(at(result(piece, own.begin)), shape_.rank + 1, own.nbytes, part.last);
}

// The parts of a piece are its stages.
std::uint32_t StagedReduction::part_of(std::size_t stage, std::uint64_t piece) const noexcept {
  const std::uint64_t number = chunk_ / piece_most_ + piece;
  return static_cast<std::uint32_t>(number * parts_.size() + stage);
}

Move StagedReduction::part_to(Rank rank, const Block& block, std::uint64_t nbytes,
                              std::uint32_t part) const {
  return move(rank, {block.array, block.begin, nbytes}, shape_.nbytes, part);
}

void StagedReduction::add_sends(std::size_t stage, std::uint64_t piece,
                                std::vector<Move>& sends) const {
  const Part& part = parts_[stage];
  const auto& [from, to, combines, sliced] = part.stage;
  if (!part.in_from || (!combines && !sliced && part.at_from > 0)) return;
  const auto& [shared, own] = ranges(piece)[stage];
  // Beginning after this rank, so that no rank is the first receiver of all others.
  for (std::size_t step = 0; step < to.size(); ++step) {
    const std::size_t at = (part.at_from + 1 + step) % to.size();
    const Rank rank = to[at];
    const bool has_it = !combines && !sliced && has(from, rank);
    if (rank == shape_.rank || has_it) continue;
    const Range sent = !combines ? own : sliced ? slice(shared, at, to.size()) : shared;
    const Block place = shape_.prefixes && !combines ? slot(slots_ + rank)
                        : part.first                 ? in(from_, piece, sent.begin)
                                                     : result(piece, sent.begin);
    sends.push_back(part_to(rank, place, sent.nbytes, part_of(stage, piece)));
  }
}

void StagedReduction::add_receives(std::size_t stage, std::uint64_t piece,
                                   std::vector<Move>& receives) const {
  const Part& part = parts_[stage];
  const auto& [from, to, combines, sliced] = part.stage;
  if (!part.in_to || (!combines && !sliced && part.in_from)) return;
  const auto& [shared, own] = ranges(piece)[stage];
  const std::size_t count = combines || sliced ? from.size() : 1;
  for (std::size_t at = 0, number = part.slot; at < count; ++at) {
    if (from[at] == shape_.rank) continue;
    const Range taken = combines || !sliced ? own : slice(shared, at, from.size());
    const Block place = combines ? slot(number++) : result(piece, taken.begin);
    receives.push_back(part_to(from[at], place, taken.nbytes, part_of(stage, piece)));
    receives.back().may_stay = combines;
  }
}

// A step waits for what was sent in the step before it, if sends are ahead: a rank that is a little
// behind keeps nobody waiting.
bool StagedReduction::next(Step& step, std::span<const Move> arrived) {
  const std::size_t stages = parts_.size();
  const std::uint64_t each = 1 + lead_;
  step.clear();
  if (over_) return false;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const auto piece = piece_at((stage + 1) * each);
    if (piece && parts_[stage].stage.combines && parts_[stage].in_to) {
      combine(stage, *piece, arrived);
    }
  }
  by_->finish();
  if (step_ == pieces_ - 1 + stages * each) {
    if (through_room_ && shape_.has_result) {
      step.copies.push_back({to_.part(chunk_, chunk_nbytes_), chunk_in_room()});
    }
    over_ = chunk_ + chunk_nbytes_ == shape_.nbytes;
    if (over_) return !step.copies.empty();
    begin_chunk(chunk_ + chunk_nbytes_);
  }
  if (through_room_ && step_ == 0) {
    step.copies.push_back({chunk_in_room(), from_.part(chunk_, chunk_nbytes_)});
  }
  for (std::size_t stage = stages; stage-- > 0;) {
    if (const auto piece = piece_at(stage * each)) add_sends(stage, *piece, step.sends);
    if (const auto piece = piece_at(stage * each + lead_)) {
      add_receives(stage, *piece, step.receives);
    }
  }
  ++step_;
  return true;
}

}  // namespace zerohop::engine::collective
