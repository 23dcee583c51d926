// Where the processes of this host come for the memory of an Endpoint: a Unix socket that passes
// descriptors to those who bring a token. One thread serves; invite() and dismiss() are any
// thread's.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "base/buffer.hpp"
#include "base/locks.hpp"
#include "base/unique_fd.hpp"
#include "ipc/exposures.hpp"
#include "ipc/knock.hpp"

namespace zerohop::ipc {

class Doorway {
 public:
  // board: the pages of the notification board, which every visitor is given beside the ledger.
  // They outlive the doorway. Throws Error.
  Doorway(std::shared_ptr<Exposures> exposures, const Buffer& board);

  const std::string& name() const noexcept { return name_; }
  int fd() const noexcept { return epoll_.get(); }  // readable when serve() has work
  bool serve() noexcept;  // whether somebody wants those woken who sleep beside the board
  void
  listen_again() noexcept;  // to be called now and then: see accept_all(); who never knocks goes

  Token invite();
  // Ends the visit of who came with this token, and its right to come. Who it was, or null: it may
  // still be at work for the time of one copy.
  std::shared_ptr<Visitor> dismiss(const Token& token);

 private:
  using Clock = std::chrono::steady_clock;
  struct Stranger {
    UniqueFd socket;
    Clock::time_point came;
  };
  struct Guest {
    std::shared_ptr<Visitor> visitor;
    Token token;
  };

  void accept_all();
  void hear_stranger(int fd);
  bool hear_guest(int fd);
  void let_in(UniqueFd socket, const Token& token);
  // False: it has left.
  bool give(const Visitor& visitor, Gift gift, int descriptor, std::uint64_t nbytes) const;
  void answer(const Visitor& visitor, const Ask& ask) const;
  std::shared_ptr<Visitor> see_out(int fd);              // with mutex_ held
  std::shared_ptr<Visitor> see_out(const Token& token);  // likewise

  const std::shared_ptr<Exposures> exposures_;
  const Buffer& board_;
  const std::string name_;
  const std::uint64_t probe_;
  UniqueFd listener_;
  UniqueFd epoll_;
  bool listening_ = true;                        // serve() and listen_again() only, as the next
  std::unordered_map<int, Stranger> strangers_;  // before their knock

  Mutex<Rank::doorway> mutex_;  // guards the next two
  std::unordered_map<int, Guest> guests_;
  std::set<Token> invited_;
};

}  // namespace zerohop::ipc
