#include "engine/path/staged/staged_work.hpp"

#include <algorithm>

namespace zerohop::engine {

RailMask StagedPiece::rails() const noexcept {
  RailMask mask = 0;
  for (RailIndex rail = 0; rail < kMaxRails; ++rail) {
    if (rkeys[rail] != 0) mask |= RailMask{1} << rail;
  }
  return mask;
}

const StagedPiece* StagedWork::upcoming() {
  while (run_.nbytes == 0 && !(runs_ && runs_->next(run_))) {
    run_ = {};
    if (next_piece_ == pieces_.size()) return nullptr;
    const StagedPiece& piece = pieces_[next_piece_++];
    runs_.emplace(piece.near, piece.far);
  }
  return &pieces_[next_piece_ - 1];
}

void StagedWork::fail(Failure failure) {
  if (failure.effect != Effect::nothing) touched_ = true;
  if (!ended_) ended_ = std::move(failure);
}

Failure StagedWork::conclusion() {
  Failure failure = *ended_;
  if (failure.effect == Effect::nothing && touched_) {
    const bool all = upcoming() == nullptr && !missed_;
    failure.set_effect(all ? Effect::all : Effect::some);
  }
  if (failure.effect == Effect::nothing && followed_ && followed_->nbytes() > 0) {
    const Failure* own = followed_->done() ? followed_->failure() : nullptr;
    failure.set_effect(own != nullptr ? own->effect : Effect::all);  // in flight, or in place
  }
  if (failure.effect == Effect::all && upcoming() != nullptr) failure.set_effect(Effect::some);
  return failure;
}

bool StagedWork::is_done() {
  if (chunks_ > 0) return false;
  return ended_ || (upcoming() == nullptr && (!followed_ || followed_->done()));
}

std::vector<StagedSpan> StagedWork::cut(std::size_t nbytes, std::size_t most_spans) {
  std::vector<StagedSpan> spans;
  const StagedPiece* first = nullptr;
  while (nbytes > 0 && spans.size() < most_spans) {
    const StagedPiece* piece = upcoming();
    if (piece == nullptr) break;
    if (first == nullptr) first = piece;
    if (piece->gpu != first->gpu || piece->by != first->by || piece->rails() != first->rails()) {
      break;
    }
    const std::uint64_t length = std::min<std::uint64_t>(run_.nbytes, nbytes);
    spans.push_back({run_.a_address, run_.b_address, length, piece});
    run_ = {run_.a_address + length, run_.b_address + length, run_.nbytes - length};
    nbytes -= length;
  }
  return spans;
}

}  // namespace zerohop::engine
