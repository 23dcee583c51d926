#include "bindings/sliced_reduce.hpp"

#include <algorithm>

namespace zerohop::bindings::collective {

using engine::collective::kEager;
using engine::collective::Move;

std::uint64_t SlicedReduce::room_for(Rank size) noexcept { return (size - 1) * kEager; }

void SlicedReduce::begin(Rank rank, Rank size, const engine::collective::Reduction& reduction,
                         const Arrays& arrays) {
  rank_ = rank;
  size_ = size;
  reduction_ = reduction;
  arrays_ = arrays;
  piece_nbytes_ = size * kEager;
  pieces_ = (arrays.nbytes + piece_nbytes_ - 1) / piece_nbytes_;
  step_ = 0;
}

// The elements of a piece, shared evenly: the first ranks have one more.
SlicedReduce::Slice SlicedReduce::slice(std::uint64_t piece, Rank rank) const noexcept {
  const std::uint64_t itemsize = reduction_.dtype.itemsize();
  const std::uint64_t begin = piece * piece_nbytes_;
  const std::uint64_t count = std::min(piece_nbytes_, arrays_.nbytes - begin) / itemsize;
  const std::uint64_t each = count / size_, more = count % size_;
  return {begin + (rank * each + std::min<std::uint64_t>(rank, more)) * itemsize,
          (each + (rank < more ? 1 : 0)) * itemsize};
}

std::byte* SlicedReduce::slot(Rank rank) const noexcept {
  return arrays_.room + (rank < rank_ ? rank : rank - 1) * kEager;
}

void SlicedReduce::reduce_own(std::uint64_t piece) {
  const auto [begin, nbytes] = slice(piece, rank_);
  inputs_.clear();
  for (Rank rank = 0; rank < size_; ++rank) {
    inputs_.push_back(rank == rank_ ? arrays_.from + begin : slot(rank));
  }
  engine::collective::reduce(reduction_, arrays_.to + begin, inputs_,
                             nbytes / reduction_.dtype.itemsize());
}

bool SlicedReduce::next(std::vector<Move>& sends, std::vector<Move>& receives) {
  sends.clear();
  receives.clear();
  if (step_ > pieces_) return false;
  const auto add = [](std::vector<Move>& moves, Rank rank, std::byte* bytes, std::uint64_t nbytes,
                      std::uint64_t part) {
    Move move;
    move.rank = rank;
    move.bytes = bytes;
    move.nbytes = nbytes;
    move.label.part = static_cast<std::uint32_t>(part);
    moves.push_back(move);
  };
  if (step_ > 0) reduce_own(step_ - 1);
  for (Rank step = 1; step < size_; ++step) {
    const Rank other = (rank_ + step) % size_;
    if (step_ > 0) {
      const Slice own = slice(step_ - 1, rank_), its = slice(step_ - 1, other);
      add(sends, other, arrays_.to + own.begin, own.nbytes, 2 * step_ - 1);
      add(receives, other, arrays_.to + its.begin, its.nbytes, 2 * step_ - 1);
    }
    if (step_ < pieces_) {
      const Slice own = slice(step_, rank_), its = slice(step_, other);
      add(sends, other, arrays_.from + its.begin, its.nbytes, 2 * step_);
      add(receives, other, slot(other), own.nbytes, 2 * step_);
    }
  }
  ++step_;
  return true;
}

}  // namespace zerohop::bindings::collective
