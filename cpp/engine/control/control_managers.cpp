// Rails whose queue pairs a connection manager connects (rdma/connection_manager.hpp). The side
// that dialled the control connection dials their connections as well, and is established once they
// are. All of it runs on the progress thread.
#include <sys/epoll.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/report.hpp"
#include "engine/control/control.hpp"

namespace zerohop::engine {
namespace {

// Less than the 5 s promised for PeerLost.
constexpr std::chrono::milliseconds kConnectWithin{4000};

}  // namespace

void Control::watch_manager(Rail& rail) {
  progress_->watch(rail.manager()->event_fd(), EPOLLIN,
                   [this, &rail](std::uint32_t) { on_connection_events(rail); });
}

void Control::on_connection_events(Rail& rail) {
  try {
    const auto manager = rail.manager();
    while (manager && !rail.gone()) {
      const auto event = manager->next_event();
      if (!event) break;
      on_connection_event(rail, *event);
    }
  } catch (const VerbsError& error) {
    on_device_lost(rail, "device " + rail.name() + " is lost: " + error.what() +
                             "; see dmesg, then make a new Endpoint");
  }
}

void Control::on_connection_event(Rail& rail, const rdma::ConnectionEvent& event) {
  using Kind = rdma::ConnectionEvent::Kind;
  if (event.kind == Kind::requested) {
    const auto wanted = path_of(rail.index(), event.introduction.to_number);
    if (!wanted) return event.connection->reject();
    try {
      return wanted->accept(event.connection, event.introduction);
    } catch (const VerbsError& error) {
      return report(error.what());  // the peer hears of it, and check_connecting() does
    }
  }
  const std::shared_ptr<Link> link = link_of(rail.index(), *event.connection);
  if (!link) return;  // it was given up
  const auto peer_rail = link->peer->rails().at(rail.index());
  if (event.kind == Kind::routed) return connect_routed(rail.index(), event.connection);
  if (event.kind == Kind::established) {
    try {
      peer_rail->on_established(*event.connection);
    } catch (const VerbsError& error) {
      return on_unconnected(*link, rail.index(), error.what());
    }
    if (link->dialled) link->rails[rail.index()].connecting.reset();
    return complete(*link);
  }
  poller_->flush();  // the first message may have come before the end
  if (!peer_rail->connecting()) return peer_rail->on_connection_closed(*event.connection);
  on_unconnected(*link, rail.index(),
                 event.text.empty() ? "the peer closed the connection" : event.text);
}

// The kernel makes a TCP connection within the call.
void Control::connect_routed(RailIndex rail, const std::shared_ptr<rdma::Connection>& connection) {
  call_driver([connection] { connection->connect(); },
              [this, rail, connection](const std::optional<Failure>& failure) {
                const auto link = failure ? link_of(rail, *connection) : nullptr;
                if (link) on_refused_by_driver(*link, rail, *failure);
              });
}

// Of an iWARP device in software the system's TCP may have the port that rdma_cm chose: another
// attempt has another port, until check_connecting() gives up.
void Control::on_refused_by_driver(Link& link, RailIndex rail, const Failure& failure) {
  if (failure.code != EADDRINUSE) return on_unconnected(link, rail, failure.message);
  try {
    link.peer->rails().at(rail)->dial_again();
  } catch (const VerbsError& error) {
    on_unconnected(link, rail, error.what());
  }
}

std::shared_ptr<Link> Control::link_of(RailIndex rail, const rdma::Connection& connection) {
  std::shared_ptr<Link> its;
  links_.each([&](Link& link) {
    const auto peer_rail = link.peer ? link.peer->rails().at(rail) : nullptr;
    if (peer_rail && peer_rail->has(connection)) its = link.shared_from_this();
  });
  return its;
}

void Control::note_connecting(Link& link, RailIndex rail) {
  if (link.peer->rails().at(rail)->connecting()) link.rails[rail].connecting = Clock::now();
}

void Control::on_unconnected(Link& link, RailIndex rail, const std::string& cause) {
  link.rails[rail].connecting.reset();
  const std::string sentence =
      "its queue pair on " + rails_[rail]->name() + " cannot be connected: " + cause;
  if (link.peer->rails().count() == 1 && link.dialled && !link.established) {
    finish(link.dialled->id, nullptr,
           Failure{.kind = Failure::Kind::verbs, .message = sentence, .code = ECONNREFUSED});
  }
  postpone(link, rail, sentence);  // a single rail ends the connection
  if (links_.contains(link)) complete(link);
}

void Control::check_connecting(Link& link, Clock::time_point now) {
  for (RailIndex rail = 0; rail < link.rails.size() && links_.contains(link); ++rail) {
    LinkRail& state = link.rails[rail];
    const auto peer_rail = link.peer ? link.peer->rails().at(rail) : nullptr;
    if (peer_rail && rails_[rail]->is_iwarp()) peer_rail->nudge();
    if (!state.connecting) continue;
    if (!peer_rail->connecting()) {
      state.connecting.reset();
    } else if (now - *state.connecting > kConnectWithin) {
      on_unconnected(link, rail, "the peer's end did not answer in time");
    }
  }
}

}  // namespace zerohop::engine
