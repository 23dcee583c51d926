#include "bindings/sliced_reduce.hpp"

#include <algorithm>

namespace zerohop::bindings::collective {

using engine::collective::kEager;
using engine::collective::kNoRoot;
using engine::collective::Move;

std::uint64_t SlicedReduce::piece_nbytes(Rank size) noexcept { return size * kEager; }

// The slices of the others, if they do not stay in the inboxes, and the own result.
std::uint64_t SlicedReduce::room_for(Rank size) noexcept { return size * kEager; }

void SlicedReduce::begin(const Place& place, const engine::collective::Reduction& reduction,
                         const Arrays& arrays) {
  place_ = place;
  reduction_ = reduction;
  arrays_ = arrays;
  const std::uint64_t piece = piece_nbytes(place.size);
  pieces_ = std::max<std::uint64_t>((arrays.nbytes + piece - 1) / piece, 1);
  step_ = 0;
}

// The elements of a piece, shared evenly: the first ranks have one more.
SlicedReduce::Slice SlicedReduce::slice(std::uint64_t piece, Rank rank) const noexcept {
  const std::uint64_t itemsize = reduction_.dtype.itemsize();
  const std::uint64_t most = piece_nbytes(place_.size), begin = piece * most;
  const std::uint64_t count = std::min(most, arrays_.nbytes - begin) / itemsize;
  const std::uint64_t each = count / place_.size, more = count % place_.size;
  return {begin + (rank * each + std::min<std::uint64_t>(rank, more)) * itemsize,
          (each + (rank < more ? 1 : 0)) * itemsize};
}

bool SlicedReduce::wants(Rank rank) const noexcept {
  return place_.root == kNoRoot || static_cast<Rank>(place_.root) == rank;
}

std::byte* SlicedReduce::result(const Slice& own) const noexcept {
  if (arrays_.to != nullptr) return arrays_.to + own.begin;
  return arrays_.room + (place_.size - 1) * kEager;
}

void SlicedReduce::reduce_own(std::uint64_t piece, std::span<const Move> arrived) {
  const Slice own = slice(piece, place_.rank);
  inputs_.assign(place_.size, arrays_.from + own.begin);
  for (const Move& each : arrived) {
    if (each.may_stay) inputs_[each.rank] = each.arrived;
  }
  engine::collective::reduce(reduction_, result(own), inputs_,
                             own.nbytes / reduction_.dtype.itemsize());
}

bool SlicedReduce::next(std::vector<Move>& sends, std::vector<Move>& receives,
                        std::span<const Move> arrived) {
  if (step_ > pieces_) return false;
  if (step_ > 0) reduce_own(step_ - 1, arrived);
  sends.clear();
  receives.clear();
  const std::uint64_t first = 2 * (arrays_.before / piece_nbytes(place_.size));
  const auto add = [&](std::vector<Move>& moves, Rank rank, std::byte* bytes, const Slice& moved,
                       std::uint64_t part) {
    Move& move = moves.emplace_back();
    move.rank = rank;
    move.bytes = bytes;
    move.nbytes = moved.nbytes;
    move.label.part = static_cast<std::uint32_t>(first + part);
    return &move;
  };
  for (Rank step = 1; step < place_.size; ++step) {
    const Rank other = (place_.rank + step) % place_.size;
    if (step_ > 0) {
      const Slice own = slice(step_ - 1, place_.rank), its = slice(step_ - 1, other);
      if (wants(other)) add(sends, other, result(own), own, 2 * step_ - 1);
      if (wants(place_.rank)) add(receives, other, arrays_.to + its.begin, its, 2 * step_ - 1);
    }
    if (step_ < pieces_) {
      const Slice own = slice(step_, place_.rank), its = slice(step_, other);
      std::byte* const slot = arrays_.room + (step - 1) * kEager;
      add(sends, other, arrays_.from + its.begin, its, 2 * step_);
      add(receives, other, slot, own, 2 * step_)->may_stay = true;
    }
  }
  ++step_;
  return true;
}

}  // namespace zerohop::bindings::collective
