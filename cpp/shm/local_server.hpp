// Gives processes of this host access to the memory of an Endpoint: a Unix socket that passes
// descriptors to clients with a token. One thread serves; invite() and dismiss() are thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "base/acceptor.hpp"
#include "base/buffer.hpp"
#include "base/executor.hpp"
#include "base/locks.hpp"
#include "base/unique_fd.hpp"
#include "shm/exposures.hpp"
#include "shm/knock.hpp"

namespace zerohop::shm {

class LocalServer final : private Acceptor::Owner {
 public:
  // board: the pages of the notification board, which every client receives beside the generation
  // table. They outlive the local server. drivers: exports memory in chunks, which needs driver
  // calls; null: the serving thread does. Throws Error.
  LocalServer(std::shared_ptr<Exposures> exposures, const Buffer& board,
              std::shared_ptr<Executor> drivers = nullptr);

  const std::string& name() const noexcept { return name_; }
  int fd() const noexcept { return epoll_.get(); }  // readable when serve() has work
  bool serve() noexcept;  // true: threads that sleep beside the board should be woken
  void look() noexcept;   // call periodically: evicts connections that never knock, see Acceptor

  Token invite();
  // Ends the session of the client with this token, and revokes the token. Returns the client, or
  // null; it may still be accessing memory for the time of one copy.
  std::shared_ptr<LocalClient> dismiss(const Token& token);

 private:
  struct Guest {
    std::shared_ptr<LocalClient> client;
    Token token;
  };

  void admit(UniqueFd connection) override;
  void turn_away(int fd, const char* why) noexcept override;
  void watch_listener(bool watched) noexcept override;
  void hear_pending(int fd);
  bool hear_guest(int fd);
  void let_in(UniqueFd socket, const Token& token);
  // False: the client has left.
  bool give(const LocalClient& client, Gift gift, int descriptor, std::uint64_t nbytes) const;
  void answer(const std::shared_ptr<LocalClient>& client, const Ask& ask) const;
  std::shared_ptr<LocalClient> see_out(int fd);              // call with mutex_ held
  std::shared_ptr<LocalClient> see_out(const Token& token);  // likewise

  const std::shared_ptr<Exposures> exposures_;
  const Buffer& board_;
  const std::string name_;
  const std::uint64_t probe_;
  const std::shared_ptr<Executor> drivers_;
  Acceptor acceptor_;  // for serve() and look() only, like the next two
  UniqueFd epoll_;
  std::unordered_map<int, UniqueFd> pending_;  // before their knock

  Mutex<Rank::local_server> mutex_;  // guards the next two
  std::unordered_map<int, Guest> guests_;
  std::set<Token> invited_;
};

}  // namespace zerohop::shm
