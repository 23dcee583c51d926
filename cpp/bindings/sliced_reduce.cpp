#include "bindings/sliced_reduce.hpp"

#include <algorithm>

namespace zerohop::bindings::collective {

using engine::collective::kEager;
using engine::collective::kNoRoot;
using engine::collective::Move;

namespace {

constexpr std::uint64_t kLag = 3;  // steps from the slices of a piece to its last result

}  // namespace

// The slices of the others, if they do not stay in the inboxes, and the own result.
std::uint64_t SlicedReduce::room_for(Rank size) noexcept { return size * kEager; }

std::uint64_t SlicedReduce::chunk_for(Rank size) noexcept {
  const std::uint64_t piece = size * kEager;
  return std::max<std::uint64_t>(kChunk / piece, 1) * piece;
}

void SlicedReduce::begin(const Place& place, const engine::collective::Reduction& reduction,
                         const Arrays& arrays) {
  place_ = place;
  reduction_ = reduction;
  arrays_ = arrays;
  begin_chunk(0);
}

// An empty array has one empty piece.
void SlicedReduce::begin_chunk(std::uint64_t begin) noexcept {
  const std::uint64_t piece = place_.size * kEager;
  chunk_ = begin;
  chunk_nbytes_ = std::min(chunk_for(place_.size), arrays_.nbytes - begin);
  pieces_ = std::max<std::uint64_t>((chunk_nbytes_ + piece - 1) / piece, 1);
  step_ = 0;
}

// The elements of a piece, shared evenly: the first ranks have one more. lag: steps since the
// others' slices were on their way; nullopt: there was no piece then.
std::optional<SlicedReduce::Piece> SlicedReduce::piece(std::uint64_t lag) const noexcept {
  if (step_ < lag || step_ - lag >= pieces_) return std::nullopt;
  const std::uint64_t most = place_.size * kEager, begin = (step_ - lag) * most;
  const std::uint64_t nbytes = std::min(most, chunk_nbytes_ - begin);
  return Piece{chunk_ + begin, nbytes / reduction_.dtype.itemsize()};
}

SlicedReduce::Slice SlicedReduce::slice(const Piece& piece, Rank rank) const noexcept {
  const std::uint64_t itemsize = reduction_.dtype.itemsize();
  const std::uint64_t each = piece.count / place_.size, more = piece.count % place_.size;
  return {piece.begin + (rank * each + std::min<std::uint64_t>(rank, more)) * itemsize,
          (each + (rank < more ? 1 : 0)) * itemsize};
}

bool SlicedReduce::wants(Rank rank) const noexcept {
  return place_.root == kNoRoot || static_cast<Rank>(place_.root) == rank;
}

std::byte* SlicedReduce::result(const Slice& own) const noexcept {
  if (arrays_.to != nullptr) return arrays_.to + own.begin;
  return arrays_.room + (place_.size - 1) * kEager;
}

void SlicedReduce::reduce_own(const Piece& piece, std::span<const Move> arrived) {
  const Slice own = slice(piece, place_.rank);
  inputs_.assign(place_.size, arrays_.from + own.begin);
  for (const Move& each : arrived) {
    if (each.may_stay) inputs_[each.rank] = each.arrived;
  }
  engine::collective::reduce(reduction_, result(own), inputs_,
                             own.nbytes / reduction_.dtype.itemsize());
}

// The parts of a piece are its slices and its results.
Move SlicedReduce::move(Rank rank, std::byte* bytes, const Slice& moved, const Piece& piece,
                        bool is_result) const noexcept {
  const std::uint64_t number = (arrays_.before + piece.begin) / (place_.size * kEager);
  Move made;
  made.rank = rank;
  made.bytes = bytes;
  made.nbytes = moved.nbytes;
  made.label.part = static_cast<std::uint32_t>(2 * number + (is_result ? 1 : 0));
  return made;
}

// A step waits for what was sent in the step before it: a rank that is a little behind keeps nobody
// waiting.
bool SlicedReduce::next(std::vector<Move>& sends, std::vector<Move>& receives,
                        std::span<const Move> arrived) {
  if (step_ == pieces_ + kLag) {
    if (chunk_ + chunk_nbytes_ == arrays_.nbytes) return false;
    begin_chunk(chunk_ + chunk_nbytes_);
  }
  sends.clear();
  receives.clear();
  const auto sent = piece(0), taken = piece(1), reduced = piece(2), complete = piece(kLag);
  if (reduced) reduce_own(*reduced, arrived);
  for (Rank step = 1; step < place_.size; ++step) {
    const Rank other = (place_.rank + step) % place_.size;
    if (reduced && wants(other)) {
      const Slice own = slice(*reduced, place_.rank);
      sends.push_back(move(other, result(own), own, *reduced, true));
    }
    if (sent) {
      const Slice its = slice(*sent, other);
      sends.push_back(move(other, arrays_.from + its.begin, its, *sent, false));
    }
    if (complete && wants(place_.rank)) {
      const Slice its = slice(*complete, other);
      receives.push_back(move(other, arrays_.to + its.begin, its, *complete, true));
    }
    if (taken) {
      std::byte* const slot = arrays_.room + (step - 1) * kEager;
      receives.push_back(move(other, slot, slice(*taken, place_.rank), *taken, false));
      receives.back().may_stay = true;
    }
  }
  ++step_;
  return true;
}

}  // namespace zerohop::bindings::collective
