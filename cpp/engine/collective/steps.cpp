#include "engine/collective/steps.hpp"

#include <cstring>
#include <utility>

namespace zerohop::engine::collective {
namespace {

void label_as(std::vector<Move>& moves, const Label& common) noexcept {
  for (Move& move : moves) {
    const std::uint64_t nbytes = move.label.nbytes;
    const std::uint32_t part = move.label.part;
    move.label = common;
    move.label.nbytes = nbytes;
    move.label.part = part;
  }
}

}  // namespace

void Steps::begin(std::shared_ptr<Schedule> schedule, const Labels& labels) {
  schedule_ = std::move(schedule);
  labels_ = labels;
  if (!next({})) step_.clear();
}

bool Steps::next(std::span<const Move> arrived) {
  copied_ = 0;
  if (!schedule_->next(step_, arrived)) return false;
  label_as(step_.sends, labels_.send);
  label_as(step_.receives, labels_.receive);
  return true;
}

std::optional<Copy> Steps::copy() {
  while (copied_ < step_.copies.size()) {
    const auto& [target, source] = step_.copies[copied_++];
    std::byte* const to = schedule_->at(target);
    const std::byte* const from = schedule_->at(source);
    if (target.nbytes == 0 || to == from) continue;
    if (!schedule_->array(target.array).on_host || !schedule_->array(source.array).on_host) {
      return Copy{target, source};
    }
    std::memcpy(to, from, target.nbytes);
  }
  return std::nullopt;
}

bool Steps::provide(Move& move) const {
  if (!move.memory && schedule_) {
    move.memory = memory_of(schedule_->array(move.array), move.begin, move.nbytes);
  }
  return move.memory != nullptr;
}

}  // namespace zerohop::engine::collective
