// The thread of an open device.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/spin_wait.hpp"
#include "softhca/async_events.hpp"
#include "softhca/completion_channel.hpp"
#include "softhca/completion_queue.hpp"
#include "softhca/device_faults.hpp"
#include "softhca/queue_pair.hpp"
#include "ucontext.hpp"

namespace zerohop::mlx5sim {
namespace {

using std::chrono::microseconds;

// How long it polls after the last work, and how long it sleeps between two looks at the doorbells,
// which wake nobody. The pause grows while nothing happens.
constexpr microseconds kSpin{50};
constexpr microseconds kFirstPause{50};
constexpr microseconds kLastPause{1000};
constexpr unsigned kLooksBetween = 1024;       // at what is done from outside, while there is work
constexpr int kPriority = -15;                 // nice(2)
constexpr unsigned long kTimerSlackNs = 1000;  // else the kernel adds 50 us to each pause

}  // namespace

void Ucontext::run() noexcept {
  ::prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  // An adapter does not wait for a processor. Without the right to it, this is slower.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kPriority);
  microseconds pause = kFirstPause;
  while (!stopping_.load()) {
    if (look()) {
      pause = kFirstPause;
      for (SpinWait wait(kSpin); !look() && wait.pause();) {
      }
      continue;
    }
    {
      const std::lock_guard guard(mutex_);
      look_outside();
      arm();
      if (step()) continue;
      pass_on_events();
    }
    sleep(pause);
    pause = std::min(pause * 2, kLastPause);
  }
}

bool Ucontext::look() {
  for (int commands; (commands = waiting_.load()) > 0;) waiting_.wait(commands);
  const std::lock_guard guard(mutex_);
  if (++looks_ % kLooksBetween == 0) look_outside();
  return step();
}

bool Ucontext::step() {
  if (removed_) return false;
  bool busy = answer_doorbells();
  for (const auto& [handle, qp] : qps) busy |= qp->take_receives();
  for (const auto& [handle, srq] : srqs) busy |= srq->take();
  return deliver() || busy;
}

bool Ucontext::answer_doorbells() {
  bool busy = false;
  uars.each([&](std::uint32_t page) {
    if (uars.was_cq_rung(page)) {
      for (const auto& [handle, cq] : cqs) cq->look();
      busy = true;
    }
    uars.each_send_rung(page, [&](std::uint32_t number) {
      busy = true;
      const auto named = by_number.find(number);
      if (named == by_number.end() || named->second->page() != page) return;
      // All that ring there: this doorbell may have covered that of another.
      for (const auto& [handle, qp] : qps) qp->rung |= qp->page() == page;
    });
  });
  for (const auto& [handle, qp] : qps) {
    if (qp->rung) busy |= qp->take_sends(batch_);
  }
  return busy;
}

bool Ucontext::deliver() {
  std::array<ibv_wc, 32> found;
  bool busy = false;
  for (;;) {
    const int count = softhca::poll_cq(soft_cq, static_cast<int>(found.size()), found.data());
    if (count <= 0) return busy;
    busy = true;
    for (int i = 0; i < count; ++i) complete(found[static_cast<std::size_t>(i)]);
  }
}

void Ucontext::complete(const ibv_wc& completion) {
  const auto place = by_number.find(completion.qp_num);
  if (place == by_number.end()) return;  // destroyed meanwhile
  Qp& qp = *place->second;
  if (completion.status != IBV_WC_SUCCESS) pass_on_events();
  const bool arrived = (completion.opcode & IBV_WC_RECV) != 0;
  if (arrived && qp.srq != nullptr && qp.srq->was_used()) {
    raise(IBV_EVENT_SRQ_LIMIT_REACHED, qp.srq->user_handle, &qp.srq->async);
  }
  if (!qp.complete(completion)) overrun(arrived ? qp.receive_cq : qp.send_cq, qp);
  const bool flushed = completion.status == IBV_WC_WR_FLUSH_ERR;
  if (completion.status != IBV_WC_SUCCESS && !(arrived && flushed)) fail(qp);
}

void Ucontext::overrun(Cq& cq, Qp& qp) {
  if (!cq.overrun) raise(IBV_EVENT_CQ_ERR, cq.user_handle(), &cq.async);
  cq.overrun = true;
  if (state_of(qp.soft) == IBV_QPS_ERR) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  softhca::modify_qp(qp.soft, &attributes, IBV_QP_STATE);
  raise(IBV_EVENT_QP_FATAL, qp.user_handle, &qp.async);
  (void)qp.fail();
}

void Ucontext::fail(Qp& qp) {
  if (!qp.fail()) overrun(qp.receive_cq, qp);
  if (!std::exchange(qp.owes_last_receive, false)) return;
  raise(IBV_EVENT_QP_LAST_WQE_REACHED, qp.user_handle, &qp.async);
}

void Ucontext::pass_on(ibv_event_type type, Qp& qp) {
  if (type == IBV_EVENT_QP_LAST_WQE_REACHED && qp.state_shown(IBV_QPS_ERR) != IBV_QPS_ERR) {
    qp.owes_last_receive = true;
    return;
  }
  raise(type, qp.user_handle, &qp.async);
  // It refused a request of its peer.
  if (type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_QP_REQ_ERR) fail(qp);
}

void Ucontext::pass_on_events() {
  ibv_async_event event{};
  while (softhca::get_async_event(soft, &event) == 0) {
    if (event.event_type == IBV_EVENT_DEVICE_FATAL) {
      raise(event.event_type, 0, nullptr);
    } else if (event.event_type != IBV_EVENT_CQ_ERR) {
      const auto place = by_number.find(event.element.qp->qp_num);
      if (place != by_number.end()) pass_on(event.event_type, *place->second);
    }
    softhca::ack_async_event(&event);
  }
}

void Ucontext::look_outside() {
  if (removed_ || !watch_.changed()) return;
  if (watch_.is_removed()) return remove();
  const bool up = watch_.is_port_up();
  if (up == std::exchange(port_up_, up)) return;
  softhca::Faults faults;
  faults.drop = up ? 0 : 1;  // nothing leaves: neither requests nor what answers those of others
  softhca::set_faults(soft, faults);
  raise(up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, /*element=*/1, nullptr);
}

// No queue gets a completion any more: an adapter that was pulled out writes none.
void Ucontext::remove() {
  removed_ = true;
  for (const auto& [handle, qp] : qps) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    softhca::modify_qp(qp->soft, &attributes, IBV_QP_STATE);
  }
  raise(IBV_EVENT_DEVICE_FATAL, 0, nullptr);
}

void Ucontext::arm() {
  ibv_cq* fired = nullptr;
  void* context = nullptr;
  while (softhca::get_cq_event(soft_channel_, &fired, &context) == 0) {
    softhca::ack_cq_events(fired, 1);
    armed_ = false;
  }
  if (armed_) return;
  softhca::req_notify_cq(soft_cq, 0);
  armed_ = true;
}

void Ucontext::sleep(std::chrono::nanoseconds most) noexcept {
  std::array<pollfd, 3> watched{
      {{soft_channel_->fd, POLLIN, 0}, {soft->async_fd, POLLIN, 0}, {bell_.fd(), POLLIN, 0}}};
  const timespec limit{0, static_cast<long>(most.count())};
  ::ppoll(watched.data(), watched.size(), &limit, nullptr);
}

}  // namespace zerohop::mlx5sim
