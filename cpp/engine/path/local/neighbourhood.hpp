// What an Endpoint lays open to the processes of its host: exposures of its memory, its
// notification board, and the doorway where they come for both.
#pragma once

#include <memory>

#include "engine/notify/board.hpp"
#include "ipc/doorway.hpp"
#include "ipc/exposures.hpp"

namespace zerohop::engine {

class Neighbourhood {
 public:
  // drivers: see Doorway. Throws Error.
  explicit Neighbourhood(std::shared_ptr<Board> board, std::shared_ptr<Executor> drivers = nullptr)
      : board_(std::move(board)), doorway_(exposures_, board_->buffer(), std::move(drivers)) {}

  const std::shared_ptr<ipc::Exposures>& exposures() const noexcept { return exposures_; }
  ipc::Doorway& doorway() noexcept { return doorway_; }

  // For the progress thread, now and then.
  void tick() noexcept {
    doorway_.look();
    exposures_->sweep();
    exposures_->forget_gone();
  }

 private:
  const std::shared_ptr<Board> board_;
  const std::shared_ptr<ipc::Exposures> exposures_ = std::make_shared<ipc::Exposures>();
  ipc::Doorway doorway_;
};

// The right of one Peer to come in; ends with this object at the latest, and with it the visit.
class Invitation {
 public:
  explicit Invitation(std::shared_ptr<Neighbourhood> to)
      : to_(std::move(to)), token_(to_->doorway().invite()) {}
  ~Invitation() { withdraw(); }
  Invitation(const Invitation&) = delete;
  Invitation& operator=(const Invitation&) = delete;

  // Who had come, or null.
  std::shared_ptr<ipc::Visitor> withdraw() { return to_->doorway().dismiss(token_); }

  const std::string& doorway() const noexcept { return to_->doorway().name(); }
  const ipc::Token& token() const noexcept { return token_; }

 private:
  const std::shared_ptr<Neighbourhood> to_;
  const ipc::Token token_;
};

}  // namespace zerohop::engine
