// The steps of a call, one after another: what its Schedule has, labelled, and the copies before
// the moves. A call of moves alone has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/collective/schedule.hpp"

namespace zerohop::engine::collective {

// What the messages of a call have in common; for send_recv the numbers may differ.
struct Labels {
  Label send, receive;
};

class Steps {
 public:
  // Makes the first step of the schedule the current one.
  void begin(std::shared_ptr<Schedule> schedule, const Labels& labels);
  // Makes the next one the current one; false: there is none. arrived: the receives of this one.
  bool next(std::span<const Move> arrived);
  void end() noexcept {
    schedule_.reset();
    step_.clear();
  }
  bool ended() const noexcept { return schedule_ == nullptr; }

  Step& current() noexcept { return step_; }
  Array& array(std::size_t number) { return schedule_->array(number); }
  const Schedule* schedule() const noexcept { return schedule_.get(); }
  // Makes the copies before the moves. Stops at one that no CPU can make, which the caller makes
  // before it asks again; null: all have been made.
  std::optional<Copy> copy();
  // Gives the move its Memory; false: nobody has registered its array.
  bool provide(Move& move) const;

 private:
  std::shared_ptr<Schedule> schedule_;
  Labels labels_;
  Step step_;
  std::size_t copied_ = 0;  // of its copies
};

}  // namespace zerohop::engine::collective
