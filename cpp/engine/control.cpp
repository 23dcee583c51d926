// The thread's work: connections come and go, time passes. What the messages mean is in
// control_dialogue.cpp.
#include "engine/control.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "base/error.hpp"
#include "base/report.hpp"
#include "engine/socket.hpp"

namespace zerohop::engine {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{250};
constexpr milliseconds kHeartbeatEvery{1000};
// Together with a tick this keeps the promise of PeerLost within 5 s, with a second to spare for a
// loaded machine.
constexpr milliseconds kSilentFor{3500};
// A queue pair whose other half is gone sees that by itself, mostly at once.
constexpr milliseconds kNoticeWithin{500};
constexpr milliseconds kHandshakeFor{10'000};
// Strangers may hold this many unfinished handshakes open; the oldest makes room for the next.
constexpr std::size_t kMaxHandshakes = 256;

Failure to_failure(const ChannelFailure& failure) {
  try {
    failure.raise();
  } catch (const Error&) {
    return Failure::of_current_exception();
  }
}

}  // namespace

Control::Control(Address address, std::shared_ptr<rdma::Device> device,
                 std::shared_ptr<Poller> poller)
    : address_(std::move(address)), device_(std::move(device)), poller_(std::move(poller)) {}

std::shared_ptr<Control> Control::start(Address& address, std::shared_ptr<rdma::Device> device,
                                        std::shared_ptr<Poller> poller) {
  UniqueFd listener = listen_tcp(address.host);
  address.port = local_port(listener.get());
  std::shared_ptr<Control> control(new Control(address, std::move(device), std::move(poller)));
  control->listener_ = std::move(listener);
  Control* self = control.get();  // the thread is joined before the object goes
  self->progress_ = std::make_unique<Progress>([self] { return self->idle(); });
  self->progress_->run([self] {
    self->progress_->watch(self->listener_.get(), EPOLLIN,
                           [self](std::uint32_t) { self->accept_ready(); });
    self->progress_->watch(self->poller_->event_fd(), EPOLLIN,
                           [](std::uint32_t) {});  // idle() serves
    self->progress_->watch(self->device_->async_fd(), EPOLLIN,
                           [self](std::uint32_t) { self->on_async_event(); });
  });
  return control;
}

// --- any thread ---

std::shared_ptr<Attempt> Control::connect(const Address& address) {
  auto attempt = std::make_shared<Attempt>(address);
  progress_->run([this, attempt] { begin(attempt); });
  return attempt;
}

void Control::abandon(const std::shared_ptr<Attempt>& attempt) {
  progress_->run([this, attempt] {
    const auto found = dials_.find(attempt->address.id);
    if (found == dials_.end()) return;
    std::erase(found->second.waiting, attempt);
    if (!found->second.waiting.empty()) return;
    dials_.erase(found);
    for (const auto& [fd, link] : std::unordered_map(links_)) {
      if (link->dialled && link->dialled->id == attempt->address.id && !link->established) {
        drop(*link, "the caller of connect() gave up");
      }
    }
  });
}

std::shared_ptr<Peer> Control::take_accepted() {
  const std::lock_guard lock(mutex_);
  if (accepted_.empty()) return nullptr;
  auto peer = std::move(accepted_.front());
  accepted_.pop_front();
  return peer;
}

std::shared_ptr<Peer> Control::find(const EndpointId& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Peer>> Control::peers() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Peer>> peers;
  for (const auto& [id, peer] : peers_) peers.push_back(peer);
  return peers;
}

std::optional<std::string> Control::lonely() const {
  if (!lonely_.load()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return last_loss_;
}

void Control::tell(const std::shared_ptr<Peer>& peer, ControlMessage message) {
  progress_->run([this, peer, message = std::move(message)] {
    if (Link* link = link_of(*peer)) send(*link, message);
  });
}

void Control::leave(const std::shared_ptr<Peer>& peer, const std::string& reason) {
  progress_->run([this, peer, reason] {
    Link* link = link_of(*peer);
    if (link == nullptr) return;
    send(*link, Bye{.reason = reason});
    drop(*link, reason);
  });
}

void Control::stop() {
  progress_->run([this] {
    for (const auto& [fd, link] : std::unordered_map(links_)) {
      if (link->established) send(*link, Bye{.reason = "its endpoint was closed"});
      drop(*link, "this endpoint was closed");
    }
    for (const auto& [id, dial] : std::exchange(dials_, {})) {
      for (const auto& attempt : dial.waiting) {
        attempt->error = Failure{.message = "this endpoint was closed"};
        attempt->done.store(true);
      }
    }
    poller_->wake();
  });
  progress_->stop();
  listener_.reset();
  shares_.clear();
}

// --- the progress thread ---

milliseconds Control::idle() {
  const milliseconds sleep = poller_->serve();
  const auto now = Clock::now();
  if (now - last_tick_ >= kTick) tick(now);
  return std::min(sleep, kTick);
}

void Control::tick(Clock::time_point now) {
  // When this process itself was stopped (a debugger, a suspended machine), silence proves nothing.
  const bool overslept = last_tick_ != Clock::time_point{} && now - last_tick_ > kHeartbeatEvery;
  if (overslept) {
    for (auto& [fd, link] : links_) link->heard = now;
  }
  last_tick_ = now;
  for (const auto& [fd, link] : std::unordered_map(links_)) check_link(*link, now);
  if (!listening_) {
    progress_->change(listener_.get(), EPOLLIN);
    listening_ = true;
  }
  std::vector<Address> due;  // first collected: dial() may end a Dial at once
  for (auto& [id, dial_again] : dials_) {
    if (now < dial_again.again_at || dial_again.waiting.empty()) continue;
    dial_again.again_at = Clock::time_point::max();
    due.push_back(dial_again.waiting.front()->address);
  }
  for (const Address& address : due) dial(address);
}

void Control::check_link(Link& link, Clock::time_point now) {
  if (!link.established) {
    // Who dialled has a deadline of its own.
    if (!link.dialled && now - link.opened > kHandshakeFor)
      drop(link, "its handshake took too long");
    return;
  }
  const bool waits = link.requeue && link.requeue->generation > link.peer->generation;
  if (waits && now - link.requeued > kNoticeWithin) {
    link.peer->path().abandon("the peer replaced its queue pair after an error");
  }
  if (now - link.heard > kSilentFor) {
    return drop(link, "no sign of life for 3.5 s (it hangs or is stopped, or the network is cut)");
  }
  if (now - link.spoke >= kHeartbeatEvery) send(link, Heartbeat{.sequence = ++link.heartbeats});
}

void Control::accept_ready() {
  try {
    while (UniqueFd fd = accept_tcp(listener_.get())) {
      const auto is_open = [](const auto& entry) { return !entry.second->peer; };
      if (static_cast<std::size_t>(std::ranges::count_if(links_, is_open)) >= kMaxHandshakes) {
        const auto older = [](const auto& a, const auto& b) {
          return a.second->opened < b.second->opened;
        };
        auto strangers = links_ | std::views::filter(is_open);
        const std::shared_ptr<Link> oldest = std::ranges::min_element(strangers, older)->second;
        drop(*oldest, "too many handshakes are open");
      }
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

void Control::on_async_event() {
  while (const auto event = device_->next_async_event()) {
    // Errors of one queue pair reach its path as completions; these two end all of them.
    if (event->type != IBV_EVENT_DEVICE_FATAL && event->type != IBV_EVENT_CQ_ERR) continue;
    const std::string reason = "device " + device_->name() + " failed (asynchronous event " +
                               std::to_string(event->type) + ")";
    for (const auto& [fd, link] : std::unordered_map(links_)) drop(*link, reason);
  }
}

void Control::begin(const std::shared_ptr<Attempt>& attempt) {
  const EndpointId& id = attempt->address.id;
  if (auto peer = find(id); peer && peer->alive()) {
    attempt->peer = std::move(peer);
    attempt->done.store(true);
    return poller_->wake();
  }
  Dial& waiting = dials_[id];
  waiting.waiting.push_back(attempt);
  if (waiting.waiting.size() == 1) dial(attempt->address);
}

void Control::dial(const Address& address) {
  std::shared_ptr<Peer> peer;
  try {
    peer = make_peer_({.id = address.id, .name = address.name, .host_name = {}, .pid = 0});
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

// Gives everyone who waits for that peer the result.
void Control::finish(const EndpointId& id, std::shared_ptr<Peer> peer,
                     std::optional<Failure> error) {
  const auto found = dials_.find(id);
  if (found == dials_.end()) return;
  for (const auto& attempt : found->second.waiting) {
    attempt->peer = peer;
    attempt->error = error;
    attempt->done.store(true);
  }
  dials_.erase(found);
  poller_->wake();
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

// Ends the connection. Whoever waits for it learns why.
void Control::drop(Link& link, const std::string& reason) {
  const auto known = links_.find(link.channel->fd());
  if (known == links_.end() || known->second.get() != &link) return;
  const std::shared_ptr<Link> alive = known->second;
  progress_->unwatch(link.channel->fd());
  links_.erase(known);
  link.channel->close(reason);
  if (!link.peer) return;
  {
    const std::lock_guard lock(mutex_);
    const auto published = peers_.find(link.peer->identity().id);
    if (published != peers_.end() && published->second == link.peer) {
      peers_.erase(published);
      last_loss_ = "peer '" + link.peer->identity().name + "' is lost: " + reason;
      lonely_.store(peers_.empty());
    }
    forget_lost_strangers();
  }
  link.peer->lose(reason);
  poller_->wake();
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

}  // namespace zerohop::engine
