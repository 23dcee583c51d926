// The life of a control connection: accepted, watched, found silent, dropped. All of it runs on the
// progress thread.
#include <sys/epoll.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/report.hpp"
#include "base/strangers.hpp"
#include "engine/control.hpp"
#include "engine/socket.hpp"

namespace zerohop::engine {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHeartbeatEvery{1000};
// Together with a tick this keeps the promise of PeerLost within 5 s, with a second to spare for a
// loaded machine.
constexpr milliseconds kSilentFor{3500};
constexpr milliseconds kHandshakeFor{10'000};
// Strangers may hold this many unfinished handshakes open; one makes room for the next.
constexpr std::size_t kMaxHandshakes = 256;
constexpr int kAcceptsAtOnce = 16;  // then those who have said something are heard

Failure to_failure(const ChannelFailure& failure) {
  try {
    failure.raise();
  } catch (const Error&) {
    return Failure::of_current_exception();
  }
}

}  // namespace

void Control::accept_ready() {
  try {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      UniqueFd fd = accept_tcp(listener_.get());
      if (!fd) return;
      make_room();
      add_link(Channel::accept(std::move(fd), address_.secret));
    }
  } catch (const Error& error) {
    // The connection stays pending and would wake this thread for ever: look again at the next
    // tick.
    progress_->change(listener_.get(), 0);
    listening_ = false;
    report(std::string("endpoint cannot accept a connection: ") + error.what());
  }
}

void Control::make_room() {
  const auto came = [](const auto& entry) {
    const Link& link = *entry.second;
    return link.peer ? std::nullopt : std::optional(link.opened);
  };
  const auto is_stranger = [&](const auto& entry) { return came(entry).has_value(); };
  const auto strangers = std::ranges::count_if(links_, is_stranger);
  if (static_cast<std::size_t>(strangers) < most_strangers(kMaxHandshakes)) return;
  const auto victim = pick_victim(links_.begin(), links_.end(), came);
  drop(*std::shared_ptr(victim->second), "too many handshakes are open");
}

Link& Control::add_link(std::unique_ptr<Channel> channel) {
  auto link = std::make_shared<Link>();
  link->channel = std::move(channel);
  const int fd = link->channel->fd();
  progress_->watch(fd, EPOLLIN, [this, link](std::uint32_t) { on_ready(link); });
  links_.emplace(fd, link);
  watch_output(*link);
  return *link;
}

void Control::on_ready(const std::shared_ptr<Link>& link) {
  const bool open = link->channel->progress([&](std::span<const std::byte> bytes) {
    link->heard = Clock::now();
    // A message may end the link: those behind it belong to nobody.
    if (links_.contains(link->channel->fd())) on_message(*link, decode_control_message(bytes));
  });
  const auto known = links_.find(link->channel->fd());
  if (known == links_.end() || known->second != link) return;
  if (open) return watch_output(*link);
  const auto failure = link->channel->failure();
  if (failure && link->dialled && !link->established) {
    finish(link->dialled->id, nullptr, to_failure(*failure));
  }
  drop(*link, failure ? failure->message : "its control connection ended");
}

void Control::watch_output(Link& link) {
  const bool wanted = link.channel->wants_write();
  if (wanted == link.watches_output) return;
  link.watches_output = wanted;
  progress_->change(link.channel->fd(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void Control::send(Link& link, const ControlMessage& message) {
  try {
    link.channel->send(encode(message));
  } catch (const Error&) {
    return;  // the channel is closed: its descriptor says so, and on_ready() ends the link
  }
  link.spoke = Clock::now();
  watch_output(link);
}

void Control::tell_end(const Link& link, const std::string& reason) const {
  log(link.parts ? Level::info : Level::warning, "connection", [&] {
    return "'" + address_.name + "' is no longer connected to peer '" + link.peer->identity().name +
           "': " + reason;
  });
}

// Ends the connection. Whoever waits for it learns why.
void Control::drop(Link& link, const std::string& reason) {
  const auto known = links_.find(link.channel->fd());
  if (known == links_.end() || known->second.get() != &link) return;
  const std::shared_ptr<Link> alive = known->second;
  progress_->unwatch(link.channel->fd());
  links_.erase(known);
  link.channel->close(reason);
  if (!link.peer) return;
  poller_->flush();  // what it has sent before is there before anybody learns that it is lost
  {
    const std::lock_guard lock(mutex_);
    const auto published = peers_.find(link.peer->identity().id);
    if (published != peers_.end() && published->second == link.peer) {
      peers_.erase(published);
      last_loss_ = "peer '" + link.peer->identity().name + "' is lost: " + reason;
      lonely_->store(peers_.empty() ? 1 : 0);
    }
    forget_lost_strangers();
  }
  if (link.established) tell_end(link, reason);
  link.peer->lose(reason);
  poller_->wake();
}

// Ends a connection from this side, and tells the peer why.
void Control::part(Link& link, const std::string& reason) {
  send(link, Bye{.reason = reason});
  drop(link, reason);
}

// Who came and went before accept() can still be accepted, for what it has sent; but not without
// end.
void Control::forget_lost_strangers() {
  constexpr std::size_t kKept = 64;
  if (accepted_.size() <= kKept) return;
  const auto lost =
      std::ranges::find_if(accepted_, [](const auto& peer) { return !peer->alive(); });
  if (lost != accepted_.end()) accepted_.erase(lost);
}

Link* Control::link_of(const Peer& peer) {
  for (const auto& [fd, link] : links_) {
    if (link->peer.get() == &peer) return link.get();
  }
  return nullptr;
}

void Control::check_link(Link& link, Clock::time_point now) {
  if (!link.established) {
    // Who dialled has a deadline of its own.
    if (!link.dialled && now - link.opened > kHandshakeFor)
      drop(link, "its handshake took too long");
    return;
  }
  if (now - link.heard > kSilentFor) {
    return drop(link, "no sign of life for 3.5 s (it hangs or is stopped, or the network is cut)");
  }
  if (now - link.spoke >= kHeartbeatEvery) send(link, Heartbeat{.sequence = ++link.heartbeats});
  check_rails(link, now);
  check_answer(link, now);
}

}  // namespace zerohop::engine
