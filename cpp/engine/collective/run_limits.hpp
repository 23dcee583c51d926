// How long one run() of an Exchange goes on before it returns to its caller.
#pragma once

#include <optional>

#include "base/deadline.hpp"

namespace zerohop::engine::collective {

class RunLimits {
 public:
  // slice: for each arrival; last: for all.
  void begin(Deadline::Seconds slice, const Deadline& last) noexcept {
    slice_ = slice;
    last_ = last;
    pause_.reset();
  }
  const Deadline& last() const noexcept { return last_; }
  // The end of a wait that begins now.
  Deadline until() const {
    const Deadline slice = Deadline::after(slice_);
    return slice.at() < last_.at() ? slice : last_;
  }
  // Whether a slice has passed since the first question. A long call stops now and then for signals
  // and its timeout, however well it goes.
  bool asks_for_pause() {
    if (!pause_) pause_ = until();
    return pause_->passed();
  }

 private:
  Deadline::Seconds slice_{0};
  Deadline last_ = Deadline::after(Deadline::Seconds{0});
  std::optional<Deadline> pause_;
};

}  // namespace zerohop::engine::collective
