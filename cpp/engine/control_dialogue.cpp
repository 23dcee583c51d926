// What the control messages mean. All of it runs on the progress thread.
//
// Connecting:   initiator Hello ->   <- Hello acceptor   Ready ->     (each end connects its queue
// pair on the other's Hello; the initiator may post when it sent Ready, the acceptor when it got
// it) Two ends that dial each other at once: the one with the lower id goes on, the other yields.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/report.hpp"
#include "engine/control.hpp"

namespace zerohop::engine {
namespace {

constexpr std::chrono::milliseconds kRedialAfter{1000};
constexpr const char* kCrossing = "crossing";  // Bye: the other connection of the two goes on
constexpr std::size_t kMaxWaitingLookups = 1024;

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

PathTerms terms_of(const Hello& hello) {
  return {.queue_pair = hello.queue_pair,
          .receive_slots = hello.receive_slots,
          .slot_nbytes = hello.slot_nbytes};
}

}  // namespace

void Control::on_message(Link& link, const ControlMessage& message) {
  const bool greets =
      std::holds_alternative<Hello>(message) || std::holds_alternative<Bye>(message);
  if (!greets && !link.peer) throw ProtocolError("a control message came before the Hello");
  std::visit([&](const auto& each) { on(link, each); }, message);
}

Hello Control::make_hello(const EndpointId& to, Peer& peer) {
  const PathTerms terms = peer.path().terms();
  return {.id = address_.id,
          .name = address_.name,
          .host_name = host_name(),
          .pid = static_cast<std::uint32_t>(::getpid()),
          .queue_pair = terms.queue_pair,
          .receive_slots = terms.receive_slots,
          .slot_nbytes = terms.slot_nbytes,
          .established = established_[to]};
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
    link.peer->path().connect(terms_of(hello));
  } catch (const Error& error) {
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
    link.peer = make_peer_(
        {.id = hello.id, .name = hello.name, .host_name = hello.host_name, .pid = hello.pid});
    link.peer->path().connect(terms_of(hello));
  } catch (const Error& error) {
    return part(link, error.what());
  }
  send(link, make_hello(hello.id, *link.peer));
}

// Whether the sender of this Hello must give way to a connection that this side began, or that
// stands already and that the sender had not seen when it dialled. Ends what must give way to it.
bool Control::yields_to(const Hello& hello) {
  if (auto present = find(hello.id); present && present->alive()) {
    if (hello.established < established_[hello.id]) return true;
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
  ++established_[id];
  link.peer->become_alive();
  {
    const std::lock_guard lock(mutex_);
    peers_[id] = link.peer;
    lonely_.store(false);
    if (!link.dialled && !dials_.contains(id)) accepted_.push_back(link.peer);
  }
  if (link.repair_wanted) repair(link.peer);
  finish(id, link.peer, std::nullopt);
  poller_->wake();
}

void Control::on(Link& link, const Lookup& lookup) {
  if (auto memory = shares_.find(lookup.name)) {
    return send(link, Found{.request = lookup.request, .memory = memory->to_bytes()});
  }
  if (link.lookups.size() >= kMaxWaitingLookups) link.lookups.erase(link.lookups.begin());
  link.lookups.emplace_back(lookup.request, lookup.name);
  send(link, NotFound{.request = lookup.request});
}

void Control::on_shared(const std::string& name) {
  progress_->run([this, name] {
    const auto memory = shares_.find(name);
    if (!memory) return;
    for (const auto& [fd, link] : links_) {
      std::erase_if(link->lookups, [&](const auto& lookup) {
        if (lookup.second != name) return false;
        send(*link, Found{.request = lookup.first, .memory = memory->to_bytes()});
        return true;
      });
    }
  });
}

void Control::on(Link& link, const Found& found) {
  link.peer->on_found(found.request, RemoteMemory::from_bytes(found.memory));
}

void Control::on(Link& link, const NotFound& not_found) {
  link.peer->on_found(not_found.request, std::nullopt);
}

void Control::on(Link&, const Heartbeat&) {}  // that it came is all it says

void Control::repair(const std::shared_ptr<Peer>& peer) {
  progress_->run([this, peer] {
    Link* link = link_of(*peer);
    if (link == nullptr) return;
    link->repair_wanted = !link->established;  // establish() asks again
    if (!link->established) return;
    try {
      peer->path().renew();
      ++peer->generation;
      send(*link,
           Requeue{.generation = peer->generation, .queue_pair = peer->path().terms().queue_pair});
      reconnect(*link);
    } catch (const Error& error) {
      part(*link, std::string("its queue pair cannot be replaced: ") + error.what());
    }
  });
}

void Control::on(Link& link, const Requeue& requeue) {
  // The peer noticed the error first. This end's queue pair is about to, and knows better what
  // became of its requests; should it not, check_link() ends it.
  link.requeue = requeue;
  link.requeued = Clock::now();
  try {
    reconnect(link);
  } catch (const Error& error) {
    part(link, std::string("its fresh queue pair is refused: ") + error.what());
  }
}

// Ends a connection from this side, and tells the peer why.
void Control::part(Link& link, const std::string& reason) {
  send(link, Bye{.reason = reason});
  drop(link, reason);
}

// Connects the fresh queue pairs once both are there.
void Control::reconnect(Link& link) {
  if (!link.requeue || link.requeue->generation != link.peer->generation) return;
  link.peer->path().reconnect(link.requeue->queue_pair);
  link.requeue.reset();
}

void Control::on(Link& link, const Bye& bye) {
  if (bye.reason == kCrossing && link.dialled && !link.established) {
    // The peer's own connection to us is on its way. Should it fail, this side dials again.
    const EndpointId id = link.dialled->id;
    drop(link, "the other of two crossing connections goes on");
    if (const auto waiting = dials_.find(id); waiting != dials_.end()) {
      waiting->second.again_at = Clock::now() + kRedialAfter;
    }
    return;
  }
  if (link.dialled && !link.established) {
    finish(link.dialled->id, nullptr,
           Failure{.kind = Failure::Kind::peer_lost,
                   .message = "the peer refused the connection: " + bye.reason});
  }
  drop(link, "it left: " + bye.reason);
}

}  // namespace zerohop::engine
