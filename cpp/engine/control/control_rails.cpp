// The rails of a connection: a broken queue pair is replaced, while the connection goes on over the
// other rails. All of it runs on the progress thread.
//
// The end that sees the error makes a fresh queue pair and announces it (Requeue). The other end
// does the same, and both connect once each has announced its own. If that fails, or the fresh
// queue pair breaks before any transfer completed, the rail is tried again every second. A
// connection with a single rail ends if its queue pair cannot be replaced.
#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "engine/control/control.hpp"

namespace zerohop::engine {
namespace {

using std::chrono::milliseconds;

// A queue pair notices by itself that its other half is gone, mostly at once.
constexpr milliseconds kNoticeWithin{500};
constexpr milliseconds kTryAgainAfter{1000};
// A sign of life received this long after the break was also sent after it: one is sent per second.
constexpr milliseconds kAliveAfter{1500};
// The connection is useless without any working rail, or with a peer that does not drain its broken
// queue pair. Less than the 5 s promised for PeerLost.
constexpr milliseconds kDarkFor{4000};

}  // namespace

void Control::repair(const std::shared_ptr<Peer>& peer, RailIndex rail) {
  progress_->run([this, peer, rail] {
    if (Link* link = links_.of(*peer)) on_broken(*link, rail);
  });
}

void Control::on_broken(Link& link, RailIndex rail) {
  LinkRail& state = link.rails[rail];
  if (!link.peer->rails().at(rail)->drained()) return;  // it has a fresh one already
  state.repair_wanted = !link.established;              // establish() asks again
  if (!link.established) return;
  state.broke = Clock::now();
  const bool again = link.peer->rails().count() > 1 && link.peer->rails().at(rail)->fruitless();
  // The peer's fresh queue pair shows that the peer is back and waits.
  const bool awaited = state.requeue && state.requeue->generation > state.generation;
  if (again && !awaited) {
    state.repair_at = Clock::now() + kTryAgainAfter;
  } else {
    renew(link, rail);
  }
}

void Control::renew(Link& link, RailIndex rail) {
  LinkRail& state = link.rails[rail];
  state.repair_at.reset();
  if (state.renewing) return;
  if (state.peer_generation > state.generation) link.peer->rails().at(rail)->settle();
  state.renewing = true;
  call_driver([peer = link.peer, rail] { peer->rails().at(rail)->renew(); },
              [this, at = link.weak_from_this(), rail](const std::optional<Failure>& failure) {
                const auto renewed = at.lock();
                if (!renewed || !links_.contains(*renewed)) return;
                renewed->rails[rail].renewing = false;
                if (!failure) return tell_renewed(*renewed, rail);
                postpone(*renewed, rail, "its queue pair cannot be replaced: " + failure->message);
              });
}

void Control::tell_renewed(Link& link, RailIndex rail) {
  LinkRail& state = link.rails[rail];
  const rdma::QueuePairAddress fresh = link.peer->rails().at(rail)->terms().queue_pair;
  if (fresh.number == 0) return;  // closed meanwhile
  try {
    // The end with fewer repairs catches up.
    const std::uint32_t theirs = state.requeue ? state.requeue->generation : 0;
    state.generation = std::max(state.generation + 1, theirs);
    send(link, Requeue{.rail = rail, .generation = state.generation, .queue_pair = fresh});
    reconnect(link, rail);
  } catch (const std::exception& error) {
    postpone(link, rail, std::string("its queue pair cannot be replaced: ") + error.what());
  }
}

// A retry may succeed later, if another rail carries the connection meanwhile.
void Control::postpone(Link& link, RailIndex rail, const std::string& cause) {
  LinkRail& state = link.rails[rail];
  if (link.peer->rails().count() == 1) return disconnect(link, cause);
  link.peer->rails().at(rail)->fail(cause);
  state.repair_at = Clock::now() + kTryAgainAfter;
}

void Control::on(Link& link, const Requeue& requeue) {
  if (requeue.rail >= link.peer->rails().count() || !link.peer->rails().at(requeue.rail)) {
    throw ProtocolError("a queue pair of a rail that the connection does not have");
  }
  // The peer noticed the error first. This end's queue pair is about to notice, and knows better
  // what happened to its requests. If it does not, check_rails() ends it.
  LinkRail& state = link.rails[requeue.rail];
  state.peer_generation = requeue.generation;
  const bool gone = requeue.queue_pair.number == 0;
  if (gone && link.peer->rails().count() == 1) return disconnect(link, "its device is gone");
  if (gone) end_rail(link, requeue.rail, "the peer's device of this rail is gone");
  const bool left = ((link.peer->rails().open_rails() >> requeue.rail) & 1) == 0;
  link.peer->rails().at(requeue.rail)->settle();
  if (left && !gone) tell_left(link, requeue.rail);
  if (left) return;
  state.requeue = requeue;
  state.requeued = Clock::now();
  try {
    reconnect(link, requeue.rail);
  } catch (const std::exception& error) {
    postpone(link, requeue.rail, std::string("its fresh queue pair is refused: ") + error.what());
  }
}

// Connects the fresh queue pairs once both exist.
void Control::reconnect(Link& link, RailIndex rail) {
  LinkRail& state = link.rails[rail];
  if (!state.requeue || state.requeue->generation != state.generation) return;
  const rdma::QueuePairAddress remote = state.requeue->queue_pair;
  state.requeue.reset();
  state.broke.reset();
  link.peer->rails().at(rail)->reconnect(remote, /*dials=*/link.dialled.has_value());
  note_connecting(link, rail);
}

void Control::check_rails(Link& link, Clock::time_point now) {
  const auto count = static_cast<RailIndex>(link.peer->rails().count());
  for (RailIndex rail = 0; rail < count; ++rail) {
    LinkRail& state = link.rails[rail];
    const auto peer_rail = link.peer->rails().at(rail);
    if (!peer_rail || peer_rail->gone()) continue;
    if (state.repair_at && now >= *state.repair_at) renew(link, rail);
    const bool waits =
        !state.renewing && state.requeue && state.requeue->generation > state.generation;
    if (waits && now - state.requeued > kNoticeWithin) {
      const bool renewable = peer_rail->drained() || peer_rail->unconnected();
      if (renewable) renew(link, rail);
      if (!renewable) peer_rail->to_error("the peer replaced its queue pair after an error");
    }
    if (count > 1 && state.broke && link.heard > *state.broke + kAliveAfter) {
      state.broke.reset();
      peer_rail->decide_alive();
    }
  }
  if (count > 1) check_settled(link, now);
  if (count > 1) check_dark(link, now);
}

void Control::check_settled(Link& link, Clock::time_point now) {
  for (RailIndex rail = 0; rail < link.peer->rails().count(); ++rail) {
    const auto since = link.peer->rails().unsettled(rail);
    if (since && now - *since >= kDarkFor) {
      return disconnect(link, "it does not drain its end of the queue pair of " +
                                  rails_[rail]->name() + " that broke");
    }
  }
}

void Control::check_dark(Link& link, Clock::time_point now) {
  const auto since = link.peer->rails().dark();
  if (!since || now - *since < kDarkFor) return;
  std::string causes;
  for (const PeerRails::Report& rail : link.peer->rails().reports()) {
    causes += (causes.empty() ? "" : "; ") + rail.device + ": " + rail.trouble;
  }
  disconnect(link, "none of its rails works any more (" + causes + ")");
}

// Permanently. The peer is sent a message and does the same.
void Control::end_rail(Link& link, RailIndex rail, const std::string& sentence) {
  const auto reason = [sentence](Effect effect) {
    return Failure{.kind = Failure::Kind::verbs, .message = sentence, .code = ENODEV}.with_effect(
        effect);
  };
  if (link.peer->rails().at(rail)->close(reason) && link.established) tell_left(link, rail);
}

void Control::tell_left(Link& link, RailIndex rail) {
  const std::uint32_t generation = ++link.rails[rail].generation;
  send(link, Requeue{.rail = rail, .generation = generation, .queue_pair = {}});
}

}  // namespace zerohop::engine
