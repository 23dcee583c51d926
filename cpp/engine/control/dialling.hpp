// A connect() in progress.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/fork.hpp"
#include "engine/control/dials.hpp"

namespace zerohop::engine {

class Control;

// Any thread. Dropping it before it is done stops dialling.
class Dialling {
 public:
  Dialling(std::weak_ptr<Control> control, std::shared_ptr<Attempt> attempt)
      : control_(std::move(control)), attempt_(std::move(attempt)) {}
  ~Dialling();
  Dialling(const Dialling&) = delete;
  Dialling& operator=(const Dialling&) = delete;

  bool done() const noexcept { return attempt_->done.is(); }
  // See Done::on_set() and forget().
  Done::Id on_done(std::function<void()> callback) {
    return attempt_->done.on_set(std::move(callback));
  }
  void forget(Done::Id id) noexcept { attempt_->done.forget(id); }
  // Once it is done. Throws the error that prevented the connection.
  std::shared_ptr<Peer> peer() const;
  std::string late() const;  // message for a wait that timed out

 private:
  const std::weak_ptr<Control> control_;
  const std::shared_ptr<Attempt> attempt_;
  const unsigned generation_ = fork_generation();  // the thread that dials belongs to the parent
};

}  // namespace zerohop::engine
