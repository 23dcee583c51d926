#include "engine/path/peer_state.hpp"

#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "engine/channel/address.hpp"

namespace zerohop::engine {

PeerState::PeerState(Identity identity, const EndpointId& own, double default_timeout)
    : identity_(std::move(identity)),
      own_(own),
      default_timeout_(default_timeout),
      process_generation_(fork_generation()) {}

Deadline PeerState::deadline(const std::optional<double>& timeout) const {
  return Deadline::after(Deadline::Seconds(timeout.value_or(default_timeout_)));
}

bool PeerState::lose(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (is_lost()) return false;
    why_lost_ = reason;
    state_.store(State::lost, std::memory_order_release);
  }
  lost_.set();
  return true;
}

std::string PeerState::why_lost() const {
  const std::lock_guard lock(mutex_);
  return why_lost_;
}

std::string PeerState::lost_text() const {
  const std::string why = why_lost();
  return "peer '" + identity_.name + "' is lost" + (why.empty() ? "" : ": " + why);
}

Failure PeerState::lost(Effect effect) const noexcept try {
  return Failure{.kind = Failure::Kind::peer_lost, .message = lost_text()}.with_effect(effect);
} catch (const std::bad_alloc&) {
  return {.kind = Failure::Kind::peer_lost, .message = "peer lost", .effect = effect};
}

bool PeerState::forked() const noexcept { return process_generation_ != fork_generation(); }

void PeerState::check_process() const {
  if (!forked()) return;
  throw Error(
      "this Peer belongs to the process that connected it: after fork(), make a new Endpoint in "
      "the child");
}

void PeerState::check_alive() const {
  check_process();
  if (is_lost()) throw_lost(Effect::nothing);
}

void PeerState::throw_lost(Effect effect) const {
  throw PeerLost(lost_text() + "; connect again", 0, effect);
}

void PeerState::check_own(const Memory& local) const {
  if (same_id(local.endpoint(), own_)) return;
  throw RegistrationError(
      "this memory is registered with another Endpoint: register it with the one whose Peer moves "
      "it");
}

void PeerState::check_ends(const Pair& pair) const {
  check_own(*pair.local);
  check_its(*pair.remote);
}

void PeerState::check_its(const RemoteMemory& remote) const {
  if (same_id(remote.endpoint, identity_.id)) return;
  if (same_id(remote.endpoint, own_)) {
    throw std::invalid_argument(
        "this RemoteMemory is memory of this Endpoint itself: transfers go to memory of peer '" +
        identity_.name + "', for example peer[name]");
  }
  throw std::invalid_argument("this RemoteMemory is memory of another Endpoint than peer '" +
                              identity_.name +
                              "': use the Peer that is connected to that Endpoint, or look the "
                              "memory up again, peer[name]");
}

void PeerState::check_rights(const Pair& pair, RemoteAccess needed) const {
  check_ends(pair);
  const auto& [local, remote] = std::tie(*pair.local, *pair.remote);
  if ((remote.access & needed) == 0) {
    throw std::invalid_argument(needed == kRemoteWrite
                                    ? "the remote memory is read-only: its owner registered a "
                                      "read-only array, or with writable=False"
                                    : "the remote memory may not be read");
  }
  if (needed == kRemoteRead && !local.writable()) {
    throw std::invalid_argument(
        "cannot read into a read-only array, or one whose elements overlap: register a "
        "writable one");
  }
}

void PeerState::check(const Pair& pair, RemoteAccess needed) const {
  check_rights(pair, needed);
  const Layout& local = pair.local->layout();
  const Layout& remote = pair.remote->layout;
  const bool is_write = needed == kRemoteWrite;
  check_same_shape(is_write ? local : remote, is_write ? remote : local);
}

}  // namespace zerohop::engine
