// The other end of a connection as its paths see it: its identity, and whether it is alive.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "base/failure.hpp"
#include "base/locks.hpp"
#include "engine/done.hpp"
#include "engine/endpoint_id.hpp"
#include "engine/memory/pair.hpp"

namespace zerohop::engine {

// Any thread, unless noted.
class PeerState {
 public:
  struct Identity {
    EndpointId id{};
    std::string name;
    std::string host_name;
    std::uint32_t pid = 0;
  };
  // own: this end. default_timeout: seconds, for calls without one.
  PeerState(Identity identity, const EndpointId& own, double default_timeout);

  const Identity& identity() const noexcept { return identity_; }
  const std::string& name() const noexcept { return identity_.name; }
  void learn(Identity identity) { identity_ = std::move(identity); }  // before become_alive()
  double default_timeout() const noexcept { return default_timeout_; }
  Deadline deadline(const std::optional<double>& timeout) const;

  bool alive() const noexcept { return state_.load(std::memory_order_acquire) == State::alive; }
  bool is_lost() const noexcept { return state_.load(std::memory_order_acquire) == State::lost; }
  void become_alive() noexcept { state_.store(State::alive, std::memory_order_release); }
  bool lose(const std::string& reason);  // false: already lost
  Done::Id on_lost(std::function<void()> callback) { return lost_.on_set(std::move(callback)); }
  void forget(Done::Id loss) noexcept { lost_.forget(loss); }
  std::string why_lost() const;                // empty while it is alive
  std::string lost_text() const;               // the same as a sentence
  Failure lost(Effect effect) const noexcept;  // ... and as the failure of transfers

  // Whether this process is a child of the one that connected.
  bool forked() const noexcept;
  void check_process() const;  // throws Error
  void check_alive() const;    // ... and PeerLost
  [[noreturn]] void throw_lost(Effect effect) const;

  // Check that both arrays belong to the two Endpoints of the connection, that they allow the
  // access, and have the same shape. Throw RegistrationError, std::invalid_argument.
  void check_own(const Memory& local) const;         // the local array alone
  void check_its(const RemoteMemory& remote) const;  // the remote array alone
  void check_ends(const Pair& pair) const;
  void check_rights(const Pair& pair, RemoteAccess needed) const;
  void check(const Pair& pair, RemoteAccess needed) const;

 private:
  enum class State { connecting, alive, lost };

  Identity identity_;
  const EndpointId own_;
  const double default_timeout_;
  const unsigned process_generation_;  // fork(2)
  std::atomic<State> state_{State::connecting};
  mutable Mutex<Rank::peer> mutex_;  // guards the next
  std::string why_lost_;
  Done lost_;
};

}  // namespace zerohop::engine
