// Start and stop, requests from other threads, and the periodic tick. Connections begin and end in
// control_connections.cpp and control_connecting.cpp; control_dialogue.cpp handles the later
// messages of a peer.
#include "engine/control/control.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/report.hpp"
#include "engine/channel/socket.hpp"

namespace zerohop::engine {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{250};
// A tick this late shows that this process itself was stopped.
constexpr milliseconds kOverslept{1000};

}  // namespace

Control::Control(Address address, std::shared_ptr<const EndpointKey> key, UniqueFd listener,
                 Rails rails, std::shared_ptr<Poller> poller, MakePeer make_peer, Lonely lonely,
                 std::shared_ptr<Executor> drivers)
    : address_(std::move(address)),
      key_(std::move(key)),
      rails_(std::move(rails)),
      poller_(std::move(poller)),
      make_peer_(std::move(make_peer)),
      drivers_(std::move(drivers)),
      acceptor_(std::move(listener),
                {.at_once = 16, .most_pending = 256, .patience = kHandshakeFor}, *this),
      lonely_(std::move(lonely)) {}

std::shared_ptr<Control> Control::start(Address& address, std::shared_ptr<const EndpointKey> key,
                                        Rails rails, std::shared_ptr<Poller> poller,
                                        MakePeer make_peer,
                                        std::shared_ptr<Neighbourhood> neighbourhood, Lonely lonely,
                                        std::shared_ptr<Executor> drivers) {
  UniqueFd listener = listen_tcp(address.host);
  address.port = local_port(listener.get());
  std::shared_ptr<Control> control(
      new Control(address, std::move(key), std::move(listener), std::move(rails), std::move(poller),
                  std::move(make_peer), std::move(lonely), std::move(drivers)));
  control->neighbourhood_ = std::move(neighbourhood);
  Control* self = control.get();  // the thread is joined before the object goes
  self->progress_ = std::make_unique<ProgressThread>([self] { return self->idle(); });
  self->progress_->watch(self->acceptor_.fd(), EPOLLIN,
                         [self](std::uint32_t) { self->accept_ready(); });
  if (self->neighbourhood_) self->serve_neighbours();
  for (const auto& rail : self->rails_) self->watch_device(*rail);
  self->progress_->start();
  return control;
}

void Control::serve_neighbours() {
  progress_->watch(neighbourhood_->local_server().fd(), EPOLLIN, [this](std::uint32_t) {
    if (neighbourhood_->local_server().serve()) poller_->wake();
  });
}

// --- any thread ---

std::shared_ptr<Attempt> Control::connect(const Address& address) {
  auto attempt = std::make_shared<Attempt>(address);
  progress_->run([this, attempt] { begin(attempt); });
  return attempt;
}

void Control::cancel(const std::shared_ptr<Attempt>& attempt) {
  progress_->run([this, attempt] {
    if (!dials_.remove(attempt)) return;
    for (const auto& link : links_.to(attempt->address.id)) {
      if (link->dialled && !link->established) lose(*link, "the caller of connect() gave up");
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

bool Control::has_accepted() const {
  const std::lock_guard lock(mutex_);
  return !accepted_.empty();
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
  if (lonely_->load() == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return last_loss_;
}

void Control::tell(const std::shared_ptr<Peer>& peer, ControlMessage message) {
  progress_->run([this, peer, message = std::move(message)] {
    if (Link* link = links_.of(*peer)) send(*link, message);
  });
}

void Control::look() {
  progress_->run([] {});  // the thread polls before it sleeps again
}

void Control::disconnect(const std::shared_ptr<Peer>& peer, const std::string& reason) {
  progress_->run([this, peer, reason] {
    Link* link = links_.of(*peer);
    if (link == nullptr) return;
    send(*link, Bye{.reason = reason});
    link->parts = true;
    lose(*link, reason);
  });
}

void Control::stop() {
  progress_->run([this] {
    links_.each([this](Link& link) {
      if (link.established) send(link, Bye{.reason = "its endpoint was closed"});
      link.parts = true;
      lose(link, "this endpoint was closed");
    });
    dials_.finish_all(Failure{.message = "this endpoint was closed"});
    poller_->wake();
  });
  progress_->stop();
  dials_.finish_all(Failure{.message = "this endpoint was closed"});  // begun meanwhile
  acceptor_.close();
  shares_.clear();
}

// --- the progress thread ---

void Control::call_driver(std::function<void()> call, Then then) {
  Executor::Work work = [self = shared_from_this(), call = std::move(call),
                         then = std::move(then)] {
    try {
      std::optional<Failure> failure;
      try {
        call();
      } catch (const std::exception&) {
        failure = Failure::of_current_exception();
      }
      self->progress_->run([then, failure] { then(failure); });
    } catch (const std::exception& error) {
      report({"the result of a driver call is lost: ", error.what()});
    }
  };
  if (!drivers_->run(work)) work();  // no thread available: better late than never
}

// Destroying it may call a driver, too.
void Control::retire(std::shared_ptr<const void> what) {
  Executor::Work work = [what = std::move(what)] {};
  (void)drivers_->run(work);
}

milliseconds Control::idle() {
  const milliseconds sleep = poller_->serve();
  const auto now = Clock::now();
  if (now - last_tick_ >= kTick) tick(now);
  return std::min(sleep, kTick);
}

void Control::tick(Clock::time_point now) {
  // If this process itself was stopped (a debugger, a suspended machine), silence proves nothing.
  const bool overslept = last_tick_ != Clock::time_point{} && now - last_tick_ > kOverslept;
  last_tick_ = now;
  links_.each([&](Link& link) {
    if (overslept) link.heard = now;
    check_link(link, now);
  });
  for (const auto& rail : rails_) check_device(*rail);
  if (neighbourhood_) neighbourhood_->tick();
  acceptor_.look(now);
  for (const Address& address : dials_.due(now)) dial(address);
}

}  // namespace zerohop::engine
