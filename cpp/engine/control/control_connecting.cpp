// How two endpoints become connected. All of it runs on the progress thread.
//
//   initiator Hello ->   <- Hello acceptor   Ready ->
//
// Each Hello proves the id that it contains (endpoint_key.hpp). A Hello with the id of a connected
// Peer therefore comes from that endpoint, which connects anew and replaces its old connection.
//
// Each end connects its queue pair on the other's Hello. The initiator may post once it has sent
// Ready, the acceptor once it has received it. If two ends dial each other at once, the one with
// the lower id goes on and the other yields.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "engine/channel/socket.hpp"
#include "engine/control/control.hpp"

namespace zerohop::engine {
namespace {

constexpr std::chrono::milliseconds kRedialAfter{1000};
constexpr const char* kOtherGoesOn = "the other of two crossing connections goes on";

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

void Control::begin(const std::shared_ptr<Attempt>& attempt) {
  const EndpointId& id = attempt->address.id;
  if (auto peer = find(id); peer && peer->alive()) {
    attempt->peer = std::move(peer);
    attempt->done.set();
    return poller_->wake();
  }
  if (dials_.add(attempt)) dial(attempt->address);
}

void Control::dial(const Address& address) {
  const auto with_peer = [this, address, number = dials_.number(address.id)](
                             const std::shared_ptr<Peer>& peer,
                             const std::optional<Failure>& failure) {
    if (dials_.number(address.id) != number) {
      if (!peer) return;
      peer->lose("no caller waits for it any more");
      return retire(peer);
    }
    if (failure) return finish(address.id, nullptr, failure);
    try {
      peer->secret = address.secret;
      Link& link =
          add_link(Channel::initiate(start_connect(address.host, address.port), address.secret));
      link.dialled = address;
      links_.meet(link, peer);
      send(link, make_hello(link, address.id, *peer));
    } catch (const std::exception&) {
      finish(address.id, nullptr, Failure::of_current_exception());
      peer->lose("it could not be dialled");
    }
  };
  make_peer({.id = address.id, .name = address.name, .host_name = {}, .pid = 0}, with_peer);
}

void Control::make_peer(Peer::Identity identity, WithPeer then) {
  try {
    if (const auto loss = all_gone(rails_)) throw VerbsError(*loss, ENODEV);
    check_room(identity.id);
  } catch (const Error&) {
    return then(nullptr, Failure::of_current_exception());
  }
  const auto making = peers_being_made_.insert(identity.id);
  const auto made = std::make_shared<std::shared_ptr<Peer>>();
  call_driver([this, made,
               identity = std::move(identity)] { *made = make_peer_(weak_from_this(), identity); },
              [this, made, making, then = std::move(then)](const std::optional<Failure>& failure) {
                peers_being_made_.erase(making);
                then(*made, failure);
              });
}

// Connections still being made count, as each has its queue pairs already. Of two crossing
// connections with the newcomer only one survives, so they count once.
void Control::check_room(const EndpointId& newcomer) const {
  const std::size_t most = most_peers_.load();
  const std::size_t its = links_.count(newcomer) + peers_being_made_.count(newcomer);
  if (most == 0 || links_.met() + peers_being_made_.size() - its < most) return;
  throw Error(
      "'" + address_.name + "' has " + std::to_string(most) +
          " Peers, as many as its max_peers (or ZEROHOP_MAX_PEERS) allows: close one there, or "
          "raise it",
      EUSERS);
}

void Control::finish(const EndpointId& id, const std::shared_ptr<Peer>& peer,
                     const std::optional<Failure>& error) {
  if (dials_.finish(id, peer, error)) poller_->wake();
}

Hello Control::make_hello(const Link& link, const EndpointId& to, Peer& peer) {
  Hello hello{.id = address_.id,
              .proof = key_->prove(link.channel->own_prologue()),
              .name = address_.name,
              .host_name = host_name(),
              .pid = static_cast<std::uint32_t>(::getpid()),
              .queue_pairs = {},
              .local_server = {},
              .established = established_.count(to)};
  if (const auto& invitation = peer.invitation()) {
    hello.local_server = invitation->local_server();
    hello.token = invitation->token();
  }
  hello.integrity = peer.wants_checks() ? 1 : 0;
  hello.global_atomics = 1;
  for (const auto& rail : rails_) {
    const auto peer_rail = peer.rails().at(rail->index());
    const RailTerms terms = peer_rail ? peer_rail->terms() : RailTerms{};
    hello.queue_pairs.push_back(terms.queue_pair);
    if (!peer_rail) continue;
    hello.receive_slots = terms.receive_slots;
    hello.slot_nbytes = terms.slot_nbytes;
    if (rail->device().attributes().atomic_cap != IBV_ATOMIC_GLOB) hello.global_atomics = 0;
  }
  return hello;
}

// Rail i of this end connects to rail i of the other, as far as both exist. A rail that fails to
// connect is retried, provided another one connects.
void Control::connect_rails(Link& link, const Hello& hello) {
  const std::size_t count = std::min(rails_.size(), hello.queue_pairs.size());
  link.peer->rails().set_count(count, hello.global_atomics != 0);
  link.peer->meet(hello.local_server, hello.token);
  if (hello.integrity != 0 || link.peer->wants_checks()) link.peer->check_transfers();
  std::size_t connected = 0;
  for (const auto& rail : rails_) {
    const RailIndex index = rail->index();
    const auto peer_rail = link.peer->rails().at(index);
    if (!peer_rail) continue;
    if (index >= count || hello.queue_pairs[index].number == 0) {
      peer_rail->close([name = rail->name()](Effect effect) {
        return Failure{.kind = Failure::Kind::verbs,
                       .message = "the peer has no rail that meets " + name,
                       .code = ENODEV,
                       .effect = effect};
      });
      continue;
    }
    try {
      peer_rail->connect({.queue_pair = hello.queue_pairs[index],
                          .receive_slots = hello.receive_slots,
                          .slot_nbytes = hello.slot_nbytes},
                         /*dials=*/link.dialled.has_value());
      note_connecting(link, index);
      ++connected;
    } catch (const VerbsError& error) {
      if (count == 1) throw;
      postpone(link, index, error.what());
    }
  }
  if (connected == 0) {
    throw VerbsError("none of the rails to peer '" + hello.name +
                         "' can be connected: " + link.peer->rails().reports().front().trouble,
                     ENODEV);
  }
}

void Control::on(Link& link, const Hello& hello) {
  if (hello.version != kControlVersion) {
    throw ProtocolError("peer '" + hello.name + "' speaks control version " +
                        std::to_string(hello.version) + ", this side " +
                        std::to_string(kControlVersion) + ": install the same zerohop on both");
  }
  if (link.greeted) throw ProtocolError("a second Hello");
  link.greeted = true;
  link.dialled ? on_hello_to_initiator(link, hello) : on_hello_to_acceptor(link, hello);
}

void Control::check_identity(const Link& link, const Hello& hello) const {
  if (proves(hello.proof, hello.id, link.channel->their_prologue())) return;
  throw AuthenticationError("it does not prove that it is the endpoint whose id it claims");
}

void Control::on_hello_to_initiator(Link& link, const Hello& hello) {
  if (hello.id != link.dialled->id) {
    finish(
        link.dialled->id, nullptr,
        Failure{
            .kind = Failure::Kind::authentication,
            .message =
                "another endpoint than the address names answers there: ask for a fresh address"});
    return lose(link, "another endpoint answers");
  }
  try {
    check_identity(link, hello);
    link.peer->learn(
        {.id = hello.id, .name = hello.name, .host_name = hello.host_name, .pid = hello.pid});
    connect_rails(link, hello);
  } catch (const std::exception& error) {
    finish(hello.id, nullptr, Failure::of_current_exception());
    return lose(link, error.what());
  }
  complete(link);
}

// On the side that dialled: once all rails are connected, or have failed to be.
void Control::complete(Link& link) {
  if (!link.dialled || !link.greeted || link.established) return;
  for (const LinkRail& rail : link.rails) {
    if (rail.connecting) return;
  }
  send(link, Ready{});
  establish(link);
}

void Control::on_hello_to_acceptor(Link& link, const Hello& hello) {
  try {
    check_identity(link, hello);
  } catch (const AuthenticationError& error) {
    log(Level::warning, "connection", [&] {
      return "'" + address_.name + "' refused a connection of '" + hello.name + "' (process " +
             std::to_string(hello.pid) + " on " + hello.host_name + "): " + error.what();
    });
    return disconnect(link, error.what());
  }
  // Making its queue pairs may take the driver long.
  acceptor_.prefer(link.channel->fd(), link.opened + kHandshakeFor);
  if (yields_to(hello)) {
    send(link, Bye{.reason = kOtherGoesOn, .cause = Bye::kCrossing});
    return lose(link, kOtherGoesOn);
  }
  const auto with_peer = [this, hello, at = link.weak_from_this()](
                             const std::shared_ptr<Peer>& peer,
                             const std::optional<Failure>& failure) {
    const auto greeted = at.lock();
    const bool there = greeted && links_.contains(*greeted);
    if (there && failure) {
      return disconnect(*greeted, failure->message,
                        failure->code == EUSERS ? Bye::kFull : Bye::kLeft);
    }
    if (there) return greet_back(*greeted, hello, peer);
    if (!peer) return;
    peer->lose("it has hung up");
    retire(peer);
  };
  make_peer({.id = hello.id, .name = hello.name, .host_name = hello.host_name, .pid = hello.pid},
            with_peer);
}

void Control::greet_back(Link& link, const Hello& hello, const std::shared_ptr<Peer>& peer) {
  if (yields_to(hello)) {  // to a connection that came meanwhile
    peer->lose(kOtherGoesOn);
    retire(peer);
    send(link, Bye{.reason = kOtherGoesOn, .cause = Bye::kCrossing});
    return lose(link, kOtherGoesOn);
  }
  try {
    links_.meet(link, peer);
    acceptor_.settle(link.channel->fd());
    connect_rails(link, hello);
  } catch (const std::exception& error) {
    return disconnect(link, error.what());
  }
  send(link, make_hello(link, hello.id, *link.peer));
}

// Whether the sender of this Hello must give way to a connection that this side began, or to an
// established one that the sender had not seen when it dialled. Drops the connections that must
// give way to it.
bool Control::yields_to(const Hello& hello) {
  if (auto present = find(hello.id); present && present->alive()) {
    if (hello.established < established_.count(hello.id)) return true;
    if (Link* stale = links_.of(*present)) lose(*stale, "it connected anew");
  }
  for (const auto& other : links_.to(hello.id)) {
    if (other->established) continue;
    if (other->dialled && address_.id < hello.id) return true;
    lose(*other, kOtherGoesOn);
  }
  return false;
}

void Control::on(Link& link, const Ready&) {
  if (link.dialled || link.established) throw ProtocolError("an unexpected Ready");
  establish(link);
}

void Control::establish(Link& link) {
  const EndpointId id = link.peer->identity().id;
  link.established = true;
  link.heard = Clock::now();
  established_.add(id, [this](const EndpointId& other) { return find(other) != nullptr; });
  link.peer->become_alive();
  {
    const std::lock_guard lock(mutex_);
    peers_[id] = link.peer;
    lonely_->store(0);
    if (!link.dialled && !dials_.contains(id)) accepted_.push_back(link.peer);
  }
  for (RailIndex rail = 0; rail < link.rails.size(); ++rail) {
    if (link.rails[rail].repair_wanted) repair(link.peer, rail);
  }
  log(Level::info, "connection", [&] {
    const Peer::Identity& who = link.peer->identity();
    return "'" + address_.name + "' is connected to peer '" + who.name + "' (process " +
           std::to_string(who.pid) + " on " + who.host_name + ") over " + address_.device +
           (link.peer->neighbour() != nullptr ? " and by p2p" : "");
  });
  finish(id, link.peer, std::nullopt);
  if (AsyncWaits* const waits = poller_->waits()) waits->tell_peers();
  poller_->wake();
}

void Control::on(Link& link, const Bye& bye) {
  if (bye.cause == Bye::kCrossing && link.dialled && !link.established) {
    // The peer's own connection to us is on its way. If it fails, this side dials again.
    const EndpointId id = link.dialled->id;
    lose(link, kOtherGoesOn);
    return dials_.dial_again(id, Clock::now() + kRedialAfter);
  }
  if (link.dialled && !link.established) {
    finish(link.dialled->id, nullptr,
           Failure{.kind = Failure::Kind::peer_lost,
                   .message = "the peer refused the connection: " + bye.reason,
                   .code = bye.cause == Bye::kFull ? EUSERS : 0});
  }
  link.parts = true;
  lose(link, "it left: " + bye.reason);
}

}  // namespace zerohop::engine
