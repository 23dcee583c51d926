// How two endpoints become connected. All of it runs on the progress thread.
//
//   initiator Hello ->   <- Hello acceptor   Ready ->
//
// Each end connects its queue pair on the other's Hello; the initiator may post when it sent Ready,
// the acceptor when it got it. Two ends that dial each other at once: the one with the lower id
// goes on, the other yields.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "engine/control.hpp"
#include "engine/socket.hpp"

namespace zerohop::engine {
namespace {

constexpr std::chrono::milliseconds kRedialAfter{1000};
constexpr const char* kCrossing = "crossing";  // Bye: the other connection of the two goes on

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
    attempt->done.store(true);
    return poller_->wake();
  }
  if (dials_.add(attempt)) dial(attempt->address);
}

void Control::dial(const Address& address) {
  std::shared_ptr<Peer> peer;
  try {
    peer = make_peer({.id = address.id, .name = address.name, .host_name = {}, .pid = 0});
    peer->secret = address.secret;
    Link& link =
        add_link(Channel::initiate(start_connect(address.host, address.port), address.secret));
    link.dialled = address;
    link.peer = peer;
    send(link, make_hello(address.id, *peer));
  } catch (const std::exception&) {
    finish(address.id, nullptr, Failure::of_current_exception());
    if (peer) peer->lose("it could not be dialled");
  }
}

std::shared_ptr<Peer> Control::make_peer(Peer::Identity identity) {
  if (const auto loss = all_gone(rails_)) throw VerbsError(*loss, ENODEV);
  check_room(identity.id);
  return make_peer_(weak_from_this(), std::move(identity));
}

// Those that are being connected count: each has its queue pairs already. Of two connections with
// the newcomer that cross each other one goes on.
void Control::check_room(const EndpointId& newcomer) const {
  const std::size_t most = most_peers_.load();
  const auto is_another = [&](const auto& link) {
    return link.second->peer && link.second->peer->identity().id != newcomer;
  };
  if (most == 0 || static_cast<std::size_t>(std::ranges::count_if(links_, is_another)) < most) {
    return;
  }
  throw Error("'" + address_.name + "' has " + std::to_string(most) +
              " Peers, as many as its max_peers (or ZEROHOP_MAX_PEERS) allows: close one there, or "
              "raise it");
}

void Control::finish(const EndpointId& id, const std::shared_ptr<Peer>& peer,
                     const std::optional<Failure>& error) {
  if (dials_.finish(id, peer, error)) poller_->wake();
}

Hello Control::make_hello(const EndpointId& to, Peer& peer) {
  Hello hello{.id = address_.id,
              .name = address_.name,
              .host_name = host_name(),
              .pid = static_cast<std::uint32_t>(::getpid()),
              .queue_pairs = {},
              .doorway = {},
              .established = established_.count(to)};
  if (const auto& invitation = peer.invitation()) {
    hello.doorway = invitation->doorway();
    hello.token = invitation->token();
  }
  hello.integrity = peer.wants_checks() ? 1 : 0;
  hello.global_atomics = 1;
  for (const auto& rail : rails_) {
    const auto path = peer.path(rail->index());
    const PathTerms terms = path ? path->terms() : PathTerms{};
    hello.queue_pairs.push_back(terms.queue_pair);
    if (!path) continue;
    hello.receive_slots = terms.receive_slots;
    hello.slot_nbytes = terms.slot_nbytes;
    if (rail->device().attributes().atomic_cap != IBV_ATOMIC_GLOB) hello.global_atomics = 0;
  }
  return hello;
}

// Rail i of this end meets rail i of the other, as far as both have them. One that cannot be
// connected is tried again, if another is.
void Control::connect_rails(Link& link, const Hello& hello) {
  const std::size_t count = std::min(rails_.size(), hello.queue_pairs.size());
  link.peer->set_rail_count(count, hello.global_atomics != 0);
  link.peer->meet(hello.doorway, hello.token);
  if (hello.integrity != 0 || link.peer->wants_checks()) link.peer->check_transfers();
  std::size_t connected = 0;
  for (const auto& rail : rails_) {
    const RailIndex index = rail->index();
    const auto path = link.peer->path(index);
    if (!path) continue;
    if (index >= count || hello.queue_pairs[index].number == 0) {
      path->close([name = rail->name()](Effect effect) {
        return Failure{.kind = Failure::Kind::verbs,
                       .message = "the peer has no rail that meets " + name,
                       .code = ENODEV,
                       .effect = effect};
      });
      continue;
    }
    try {
      path->connect({.queue_pair = hello.queue_pairs[index],
                     .receive_slots = hello.receive_slots,
                     .slot_nbytes = hello.slot_nbytes});
      ++connected;
    } catch (const VerbsError& error) {
      if (count == 1) throw;
      postpone(link, index, error.what());
    }
  }
  if (connected == 0) {
    throw VerbsError("none of the rails to peer '" + hello.name +
                         "' can be connected: " + link.peer->rails().front().trouble,
                     ENODEV);
  }
}

void Control::on(Link& link, const Hello& hello) {
  if (hello.version != kControlVersion) {
    throw ProtocolError("peer '" + hello.name + "' speaks control version " +
                        std::to_string(hello.version) + ", this side " +
                        std::to_string(kControlVersion) + ": install the same zerohop on both");
  }
  if (link.established || (link.peer && !link.dialled)) throw ProtocolError("a second Hello");
  link.dialled ? on_hello_to_initiator(link, hello) : on_hello_to_acceptor(link, hello);
}

void Control::on_hello_to_initiator(Link& link, const Hello& hello) {
  if (hello.id != link.dialled->id) {
    finish(
        link.dialled->id, nullptr,
        Failure{
            .kind = Failure::Kind::authentication,
            .message =
                "another endpoint than the address names answers there: ask for a fresh address"});
    return drop(link, "another endpoint answers");
  }
  link.peer->learn(
      {.id = hello.id, .name = hello.name, .host_name = hello.host_name, .pid = hello.pid});
  try {
    connect_rails(link, hello);
  } catch (const std::exception& error) {
    finish(hello.id, nullptr, Failure::of_current_exception());
    return drop(link, error.what());
  }
  send(link, Ready{});
  establish(link);
}

void Control::on_hello_to_acceptor(Link& link, const Hello& hello) {
  if (yields_to(hello)) {
    send(link, Bye{.reason = kCrossing});
    return drop(link, "the other of two crossing connections goes on");
  }
  try {
    link.peer = make_peer(
        {.id = hello.id, .name = hello.name, .host_name = hello.host_name, .pid = hello.pid});
    connect_rails(link, hello);
  } catch (const std::exception& error) {
    return part(link, error.what());
  }
  send(link, make_hello(hello.id, *link.peer));
}

// Whether the sender of this Hello must give way to a connection that this side began, or that
// stands already and that the sender had not seen when it dialled. Ends what must give way to it.
bool Control::yields_to(const Hello& hello) {
  if (auto present = find(hello.id); present && present->alive()) {
    if (hello.established < established_.count(hello.id)) return true;
    if (Link* stale = link_of(*present)) drop(*stale, "it connected anew");
  }
  for (const auto& [fd, other] : std::unordered_map(links_)) {
    if (!other->peer || other->peer->identity().id != hello.id || other->established) continue;
    if (other->dialled && address_.id < hello.id) return true;
    drop(*other, "the other of two crossing connections goes on");
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
  for (RailIndex rail = 0; rail < kMaxRails; ++rail) {
    if (link.rails[rail].repair_wanted) repair(link.peer, rail);
  }
  log(Level::info, "connection", [&] {
    const Peer::Identity& who = link.peer->identity();
    return "'" + address_.name + "' is connected to peer '" + who.name + "' (process " +
           std::to_string(who.pid) + " on " + who.host_name + ") over " + address_.device +
           (link.peer->neighbour() != nullptr ? " and by p2p" : "");
  });
  finish(id, link.peer, std::nullopt);
  poller_->wake();
  more_awake_ = true;
}

void Control::on(Link& link, const Bye& bye) {
  if (bye.reason == kCrossing && link.dialled && !link.established) {
    // The peer's own connection to us is on its way. Should it fail, this side dials again.
    const EndpointId id = link.dialled->id;
    drop(link, "the other of two crossing connections goes on");
    return dials_.dial_again(id, Clock::now() + kRedialAfter);
  }
  if (link.dialled && !link.established) {
    finish(link.dialled->id, nullptr,
           Failure{.kind = Failure::Kind::peer_lost,
                   .message = "the peer refused the connection: " + bye.reason});
  }
  link.parts = true;
  drop(link, "it left: " + bye.reason);
}

}  // namespace zerohop::engine
