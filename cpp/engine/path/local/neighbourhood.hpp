// What an Endpoint exposes to the processes of its host: its memory, its notification board, and
// the local server that provides both.
#pragma once

#include <memory>

#include "engine/notify/board.hpp"
#include "shm/exposures.hpp"
#include "shm/local_server.hpp"

namespace zerohop::engine {

class Neighbourhood {
 public:
  // drivers: see LocalServer. Throws Error.
  explicit Neighbourhood(std::shared_ptr<Board> board, std::shared_ptr<Executor> drivers = nullptr)
      : board_(std::move(board)), local_server_(exposures_, board_->buffer(), std::move(drivers)) {}

  const std::shared_ptr<shm::Exposures>& exposures() const noexcept { return exposures_; }
  shm::LocalServer& local_server() noexcept { return local_server_; }

  // For the progress thread, called periodically.
  void tick() noexcept {
    local_server_.look();
    exposures_->sweep();
    exposures_->forget_gone();
  }

 private:
  const std::shared_ptr<Board> board_;
  const std::shared_ptr<shm::Exposures> exposures_ = std::make_shared<shm::Exposures>();
  shm::LocalServer local_server_;
};

// The right of one Peer to connect; ends at the latest with this object, together with the session.
class Invitation {
 public:
  explicit Invitation(std::shared_ptr<Neighbourhood> to)
      : to_(std::move(to)), token_(to_->local_server().invite()) {}
  ~Invitation() { withdraw(); }
  Invitation(const Invitation&) = delete;
  Invitation& operator=(const Invitation&) = delete;

  // The client that had connected, or null.
  std::shared_ptr<shm::LocalClient> withdraw() { return to_->local_server().dismiss(token_); }

  const std::string& local_server() const noexcept { return to_->local_server().name(); }
  const shm::Token& token() const noexcept { return token_; }

 private:
  const std::shared_ptr<Neighbourhood> to_;
  const shm::Token token_;
};

}  // namespace zerohop::engine
