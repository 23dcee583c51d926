// The life of a control connection: accepted, watched, found silent, dropped. All of it runs on the
// progress thread.
#include <sys/epoll.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/report.hpp"
#include "engine/channel/socket.hpp"
#include "engine/control/control.hpp"

namespace zerohop::engine {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHeartbeatEvery{1000};
// Together with a tick, this raises PeerLost within the promised 5 s, with a second to spare for a
// loaded machine.
constexpr milliseconds kSilentFor{3500};

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
    acceptor_.accept();
  } catch (const std::exception& error) {
    report({"endpoint cannot accept a connection: ", error.what()});
  }
}

void Control::admit(UniqueFd connection) {
  set_stream_options(connection.get());
  add_link(Channel::accept(std::move(connection), address_.secret));
}

void Control::turn_away(int fd, const char* why) {
  if (const auto link = links_.find(fd)) lose(*link, why);
}

void Control::watch_listener(bool watched) noexcept {
  progress_->change(acceptor_.fd(), watched ? std::uint32_t{EPOLLIN} : 0U);
}

Link& Control::add_link(std::unique_ptr<Channel> channel) {
  auto link = std::make_shared<Link>();
  link->rails.resize(rails_.size());
  link->channel = std::move(channel);
  const int fd = link->channel->fd();
  progress_->watch(fd, EPOLLIN, [this, link](std::uint32_t) { on_ready(link); });
  links_.add(link);
  watch_output(*link);
  return *link;
}

void Control::on_ready(const std::shared_ptr<Link>& link) {
  const bool open = link->channel->progress([&](std::span<const std::byte> bytes) {
    link->heard = Clock::now();
    // A message may end the link; the messages behind it are then ignored.
    if (links_.contains(*link)) on_message(*link, decode_control_message(bytes));
  });
  if (!links_.contains(*link)) return;
  if (open) return watch_output(*link);
  const auto failure = link->channel->failure();
  if (failure && link->dialled && !link->established) {
    finish(link->dialled->id, nullptr, to_failure(*failure));
  }
  lose(*link, failure ? failure->message : "its control connection ended");
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
    return;  // the channel is closed: its descriptor becomes ready, and on_ready() ends the link
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

// Ends the connection. Waiting callers get the reason.
void Control::lose(Link& link, const std::string& reason) {
  const std::shared_ptr<Link> alive = links_.remove(link);
  if (!alive) return;
  progress_->unwatch(link.channel->fd());
  acceptor_.settle(link.channel->fd());
  wanted_names_.forget(link);
  for (auto& [request, target] : link.direct_targets) retire(std::move(target));
  link.channel->close(reason);
  if (!link.peer) return;
  poller_->flush();  // deliver what it sent before anything reports that it is lost
  {
    const std::lock_guard lock(mutex_);
    const auto published = peers_.find(link.peer->identity().id);
    if (published != peers_.end() && published->second == link.peer) {
      peers_.erase(published);
      last_loss_ = "peer '" + link.peer->identity().name + "' is lost: " + reason;
      lonely_->store(peers_.empty() ? 1 : 0);
    }
    forget_lost_peers();
  }
  if (link.established) tell_end(link, reason);
  link.peer->lose(reason);
  if (AsyncWaits* const waits = poller_->waits(); waits && lonely_->load() != 0) {
    waits->tell_slots();
  }
  poller_->wake();
}

// Ends a connection from this side and sends the peer the reason.
void Control::disconnect(Link& link, const std::string& reason, std::uint8_t cause) {
  send(link, Bye{.reason = reason.substr(0, kMaxNameBytes), .cause = cause});
  lose(link, reason);
}

// A peer that connected and was lost before accept() can still be accepted, for what it sent. Their
// number is bounded.
void Control::forget_lost_peers() {
  constexpr std::size_t kKept = 64;
  if (accepted_.size() <= kKept) return;
  const auto lost =
      std::ranges::find_if(accepted_, [](const auto& peer) { return !peer->alive(); });
  if (lost != accepted_.end()) accepted_.erase(lost);
}

void Control::check_link(Link& link, Clock::time_point now) {
  check_connecting(link, now);
  if (!links_.contains(link)) return;
  if (!link.established) {
    // A connection that this side dialled has a deadline of its own.
    if (!link.dialled && now - link.opened > kHandshakeFor)
      lose(link, "its handshake took too long");
    return;
  }
  if (now - link.heard > kSilentFor) {
    return lose(link, "no sign of life for 3.5 s (it hangs or is stopped, or the network is cut)");
  }
  if (now - link.spoke >= kHeartbeatEvery) send(link, Heartbeat{.sequence = ++link.heartbeats});
  check_rails(link, now);
  link.peer->sweep();
}

}  // namespace zerohop::engine
