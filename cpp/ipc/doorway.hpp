// Where the processes of this host come for the memory of an Endpoint: a Unix socket that passes
// descriptors to those who bring a token. One thread serves; invite() and dismiss() are any
// thread's.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "base/bell.hpp"
#include "base/unique_fd.hpp"
#include "ipc/exposures.hpp"
#include "ipc/knock.hpp"

namespace zerohop::ipc {

class Doorway {
 public:
  // What every visitor is given beside the ledger: the pages of the notification board, and the
  // bell that wakes who sleeps beside it. Both outlive the doorway.
  struct Gifts {
    int board = -1;
    std::uint64_t board_nbytes = 0;
    int bell = -1;
  };

  Doorway(std::shared_ptr<Exposures> exposures, Gifts gifts);  // throws Error

  const std::string& name() const noexcept { return name_; }
  int fd() const noexcept { return epoll_.get(); }  // readable when serve() has work
  void serve() noexcept;

  Token invite();
  // Ends the visit of who came with this token, and its right to come.
  void dismiss(const Token& token);

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
  void hear_guest(int fd);
  void let_in(UniqueFd socket, const Token& token);
  void give(const Visitor& visitor, Gift gift, int descriptor, std::uint64_t nbytes) const;
  void answer(const Visitor& visitor, const Ask& ask) const;
  void see_out(int fd);              // with mutex_ held
  void see_out(const Token& token);  // likewise

  const std::shared_ptr<Exposures> exposures_;
  const Gifts gifts_;
  const std::string name_;
  const std::uint64_t probe_;
  UniqueFd listener_;
  UniqueFd epoll_;
  std::unordered_map<int, Stranger> strangers_;  // before their knock; serve() only

  std::mutex mutex_;  // guards the next two
  std::unordered_map<int, Guest> guests_;
  std::set<Token> invited_;
};

}  // namespace zerohop::ipc
