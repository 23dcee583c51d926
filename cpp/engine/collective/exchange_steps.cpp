// The steps of an Exchange: what comes between the moves of one and the next.
#include <cstring>
#include <optional>
#include <utility>

#include "engine/collective/exchange.hpp"

namespace zerohop::engine::collective {

void Exchange::begin(std::shared_ptr<Schedule> schedule, const Labels& labels, bool of_all) {
  end();
  schedule_ = std::move(schedule);
  labels_ = labels;
  of_all_ = of_all;
  in_step_ = false;
  copied_ = steps_ = meanwhile_ = copied_bytes_ = 0;
  if (!schedule_->next(step_, {})) step_.clear();
}

Exchange::Outcome Exchange::run(Deadline::Seconds slice, const Deadline& last) {
  slice_ = slice;
  last_ = last;
  pause_.reset();
  if (!schedule_) return run_moves().value_or(Outcome{});
  for (;;) {
    if (in_step_) {
      if (Stop stop = run_moves()) return std::move(*stop);
      in_step_ = false;
      copied_ = meanwhile_ = 0;
      if (!schedule_->next(step_, receives_)) {
        end();
        schedule_.reset();
        return {};
      }
    }
    if (Stop stop = begin_step()) return std::move(*stop);
    if (steps_ == 1) continue;
    if (Stop stop = pause()) return std::move(*stop);
  }
}

// What the moves before it have left in the inboxes has been used.
Exchange::Stop Exchange::begin_step() {
  while (copied_ < step_.copies.size()) {
    const auto& [target, source] = step_.copies[copied_++];
    std::byte* const to = schedule_->at(target);
    const std::byte* const from = schedule_->at(source);
    if (target.nbytes == 0 || to == from) continue;
    if (!schedule_->array(target.array).on_host || !schedule_->array(source.array).on_host) {
      return Outcome{.news = News::copy, .copy = {target, source}};
    }
    std::memcpy(to, from, target.nbytes);
  }
  for (auto* const moves : {&step_.sends, &step_.receives}) {
    const Label& common = moves == &step_.sends ? labels_.send : labels_.receive;
    for (Move& move : *moves) {
      const Line& line = lines_->at(move.rank);
      if (!move.eager() && line.met() && !line.near() && !provide(move)) {
        return Outcome{.news = News::unregistered, .rank = move.rank, .move = &move};
      }
      const std::uint64_t nbytes = move.label.nbytes;
      const std::uint32_t part = move.label.part;
      move.label = common;
      move.label.nbytes = nbytes;
      move.label.part = part;
    }
  }
  end();
  begin_moves();
  in_step_ = true;
  ++steps_;
  return std::nullopt;
}

// Whether it has its Memory.
bool Exchange::provide(Move& move) const {
  if (!move.memory && schedule_) {
    move.memory = memory_of(schedule_->array(move.array), move.begin, move.nbytes);
  }
  return move.memory != nullptr;
}

}  // namespace zerohop::engine::collective
