// Asynchronous events of an Endpoint's devices, and what happens to the connections when a device
// is lost. All of it runs on the progress thread.
#include <sys/epoll.h>

#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "base/report.hpp"
#include "engine/control/control.hpp"

namespace zerohop::engine {
namespace {

constexpr std::uint32_t kBroken = EPOLLERR | EPOLLHUP;

std::string lost_text(const Rail& rail, const std::string& cause) {
  return "device " + rail.name() + " is lost: " + cause + "; see dmesg, then make a new Endpoint";
}

bool breaks_queue_pair(ibv_event_type type) noexcept {
  return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
         type == IBV_EVENT_QP_ACCESS_ERR;
}

}  // namespace

void Control::watch_device(Rail& rail) {
  progress_->watch(poller_->event_fd(rail.index()), EPOLLIN,
                   [this, &rail](std::uint32_t events) { on_completion_events(rail, events); });
  progress_->watch(rail.device().async_fd(), EPOLLIN,
                   [this, &rail](std::uint32_t events) { on_async_events(rail, events); });
  if (rail.managed()) watch_manager(rail);
}

// Consumes the events that woke the thread; idle() then polls.
void Control::on_completion_events(Rail& rail, std::uint32_t epoll_events) {
  if (const int error = poller_->consume_events(rail.index()); error != 0) {
    on_device_lost(rail, lost_text(rail, errno_message("ibv_get_cq_event failed", error)));
  } else if ((epoll_events & kBroken) != 0) {
    on_device_lost(rail, lost_text(rail, "its completion channel is broken"));
  }
}

void Control::on_async_events(Rail& rail, std::uint32_t epoll_events) {
  try {
    while (!rail.gone()) {
      const auto event = rail.device().next_async_event();
      if (!event) break;
      on_async_event(rail, *event);
    }
  } catch (const VerbsError& error) {
    on_device_lost(rail, lost_text(rail, error.what()));
  }
  if ((epoll_events & kBroken) != 0) {
    on_device_lost(rail, lost_text(rail, "its channel of asynchronous events is broken"));
  }
}

void Control::on_async_event(Rail& rail, const rdma::AsyncEvent& event) {
  const std::shared_ptr<PeerRail> peer_rail =
      event.qp_number != 0 ? path_of(rail.index(), event.qp_number) : nullptr;
  // Raised for each queue pair that is destroyed, and of interest only to its Peer.
  if (event.type == IBV_EVENT_QP_LAST_WQE_REACHED)
    return peer_rail ? peer_rail->on_last_receive() : void();
  const std::string peer = peer_rail ? peer_rail->peer_name() : "";
  const std::string sentence = rdma::describe(event, rail.name(), peer);
  events_.add({.at = {},
               .device = rail.name(),
               .type = rdma::event_name(event.type),
               .port = event.port,
               .peer = peer,
               .message = sentence});
  if (rdma::ends_device(event.type)) return on_device_lost(rail, sentence);
  if (event.qp_number != 0) {
    // Completions show that it is in error; this event says why, if it comes before them.
    if (peer_rail && breaks_queue_pair(event.type)) peer_rail->to_error(sentence);
    return;
  }
  // Transfers of a single rail will fail as timeouts, which do not say why.
  if (rdma::is_trouble(event.type)) report(sentence);
  if (event.type == IBV_EVENT_PORT_ERR) on_port_event(rail.index(), /*up=*/false, sentence);
  if (event.type == IBV_EVENT_PORT_ACTIVE) on_port_event(rail.index(), /*up=*/true, sentence);
}

std::shared_ptr<PeerRail> Control::path_of(RailIndex rail, std::uint32_t qp_number) {
  std::shared_ptr<PeerRail> its;
  links_.each([&](const Link& link) {
    const auto peer_rail = link.peer ? link.peer->rails().at(rail) : nullptr;
    if (peer_rail && peer_rail->queue_pair_number() == qp_number) its = peer_rail;
  });
  return its;
}

// With other rails available, this one is left at once rather than waiting for its port, and tried
// again as soon as the port is back. A single rail may outlast a short break.
void Control::on_port_event(RailIndex rail, bool up, const std::string& sentence) {
  links_.each([&](Link& link) {
    if (!link.established || rail >= link.peer->rails().count() ||
        link.peer->rails().count() == 1) {
      return;
    }
    const auto peer_rail = link.peer->rails().at(rail);
    if (!peer_rail) return;
    if (!up) peer_rail->to_error(sentence);
    if (up && link.rails[rail].repair_at) renew(link, rail);
  });
}

// Some drivers raise no events; then the kernel and the queues show the loss.
void Control::check_device(Rail& rail) {
  if (rail.gone()) return;
  if (rail.device().is_being_removed()) {
    on_device_lost(rail, "device " + rail.name() +
                             " is being removed from the system, which waits until this Endpoint "
                             "is closed: do so, and make a new one on another device");
  } else if (const char* call = poller_->failed_call(rail.index())) {
    on_device_lost(rail, lost_text(rail, std::string(call) + " failed"));
  }
}

// Losing the only device ends all connections; with several, the connections go on over the others.
void Control::on_device_lost(Rail& rail, const std::string& cause) {
  if (rail.gone()) return;
  rail.lose(cause);
  report(cause);
  // The descriptors would stay readable and keep waking this thread.
  progress_->unwatch(rail.device().async_fd());
  progress_->unwatch(poller_->event_fd(rail.index()));
  if (const auto manager = rail.manager()) progress_->unwatch(manager->event_fd());
  links_.each([&](Link& link) {
    const auto peer_rail = link.peer ? link.peer->rails().at(rail.index()) : nullptr;
    if (rails_.size() == 1 || (peer_rail && link.peer->rails().count() == 1)) {
      disconnect(link, cause);
    } else if (peer_rail) {
      end_rail(link, rail.index(), cause);
    }
  });
  poller_->retire(rail.index());
  if (const auto loss = all_gone(rails_)) {
    dials_.finish_all(Failure{.kind = Failure::Kind::verbs, .message = *loss, .code = ENODEV});
    if (AsyncWaits* const waits = poller_->waits()) waits->tell_all();
  }
  poller_->wake();
}

}  // namespace zerohop::engine
