// Completions of a rail: chains, messages, errors. All of it runs in whichever thread polls, with
// the mutex of the group held.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/report.hpp"
#include "engine/path/verbs/peer_rail.hpp"
#include "softhca/device_faults.hpp"

namespace zerohop::engine {
namespace {

// Statuses after which the requests behind the failed one certainly never ran: it was refused
// before anything was sent, or ended by the responder, which executes in order. Not LOC_QP_OP_ERR:
// on Soft-RoCE, sent requests also end with it if the network goes down before the acknowledgement.
bool refused_in_order(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR: return true;
    default: return false;
  }
}

// Statuses that this end's own device raises by itself: they say nothing about the peer. A refusal
// by the responder may mean that the peer has ended: when a process dies, the kernel destroys its
// memory regions before its queue pairs.
bool refused_here(ibv_wc_status status) {
  return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_LOC_QP_OP_ERR ||
         status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_GENERAL_ERR;
}

// Statuses that the end of the TCP connection under an iWARP queue pair raises: in the middle of a
// request, or for one that was still queued.
bool is_end_of_tcp(ibv_wc_status status, const Rail& rail) {
  return rail.is_iwarp() && (status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_WR_FLUSH_ERR);
}

// Statuses that a port raises when it is down: Soft-RoCE produces each of them.
bool may_be_the_port(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_LOC_QP_OP_ERR ||
         status == IBV_WC_WR_FLUSH_ERR;
}

// The faults injected into this end's device; empty on adapters. An access without a right is
// refused with or without faults, unless exactly that status was requested.
std::string on_purpose(const Rail& rail, ibv_wc_status status) {
  if (!rail.software()) return {};
  const auto counts = softhca::fault_counts(rail.device().context());
  const bool of_rights = status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_LOC_PROT_ERR;
  if (of_rights && counts->of(softhca::Fault::fail) == 0) return {};
  const std::string faults = counts->text();
  return faults.empty() ? faults : "; faults injected so far, by zh.Faults: " + faults;
}

std::string cause_of(const ibv_wc& completion, const Rail& rail) {
  std::string cause = std::string(rdma::completion_status_name(completion.status)) + ": " +
                      rdma::completion_status_help(completion.status);
  if (completion.status == IBV_WC_GENERAL_ERR) {
    cause += " (vendor_err " + std::to_string(completion.vendor_err) +
             "; of the software HCA: the CUDA error of a copy of GPU memory)";
  }
  if (completion.status == IBV_WC_REM_ACCESS_ERR) {
    cause += "; most likely its owner closed or dropped it, or its grant ended";
  }
  if (is_end_of_tcp(completion.status, rail)) {
    cause +=
        "; on iWARP the peer's device ends the connection for what it refuses, such as memory that "
        "was closed or whose grant ended, and does not say so";
  }
  if (may_be_the_port(completion.status)) {
    const std::string trouble = rail.device().port_trouble();
    if (!trouble.empty()) cause += "; " + trouble;
  }
  return cause + on_purpose(rail, completion.status);
}

// For a queued job: posted in part, or all of it except the message; or it is the message after the
// shares of other rails, which report their own effect.
Effect effect_of_cutting(const Job& job) {
  if (!job.has_data() && job.transfer()->striped()) return Effect::all;
  if (!job.started() || !job.has_data()) return Effect::nothing;
  return job.data_done() ? Effect::all : Effect::some;
}

Failure verbs_failure(const std::string& message, int code, Effect effect) {
  return Failure{.kind = Failure::Kind::verbs, .message = message, .code = code}.with_effect(
      effect);
}

}  // namespace

void PeerRail::on_completion(const ibv_wc& completion) noexcept {
  const bool posted = take(completion);
  if (!posted && ReceivePool::is_receive(completion)) receives_->post(completion.wr_id);
}

// Returns whether the buffer of a receive is posted again: before the peer can hear that the
// message was taken, as iWARP has no RNR NAK to make the next one wait.
bool PeerRail::take(const ibv_wc& completion) noexcept {
  bool posted = false;
  const std::lock_guard lock(group_->mutex);
  if (!queue_pair_ || completion.qp_num != queue_pair_->number())
    return posted;  // of a replaced one
  try {
    if (completion.status != IBV_WC_SUCCESS) {
      on_error(completion);
    } else if (ReceivePool::is_receive(completion)) {
      on_receive(completion);
      receives_->post(completion.wr_id);
      posted = true;
    } else {
      retire(completion.wr_id);
    }
    if (state_ == State::up) advance_jobs();
    if (group_->rails() > 1) group_->advance_others(rail());
  } catch (const std::exception& error) {
    break_down(error.what(), /*flushed_untouched=*/false, /*peer_may_be_gone=*/false);
  }
  report_if_drained();
  return posted;
}

void PeerRail::retire(std::uint64_t last_ticket) {
  PostedChain chain;
  std::uint64_t ticket = 0;
  while (send_queue_.pop_until(last_ticket, chain, ticket)) {
    if (chain.job > 0) jobs_done_ = chain.job;
    if (chain.probe) {
      probing_ = false;
      serve();
    }
    if (!chain.transfer) continue;
    if (chain.atomic) chain.transfer->set_result(entries_.result(send_queue_.index(ticket)));
    chain.transfer->note_progress();
    chain.transfer->drop();
  }
}

void PeerRail::on_error(const ibv_wc& completion) {
  const bool is_receive = ReceivePool::is_receive(completion);
  if (state_ == State::up) {
    const std::string cause = cause_of(completion, *services_.rail);
    const bool refused = !is_receive && refused_in_order(completion.status);
    const bool own_fault = !is_receive && refused_here(completion.status) &&
                           !is_end_of_tcp(completion.status, *services_.rail);
    break_down(cause, /*flushed_untouched=*/refused, /*peer_may_be_gone=*/!own_fault);
  }
  if (!is_receive) fail_chains(completion.wr_id, completion.status);
}

// The queue pair is in error, or is put there: posted requests come back flushed, queued jobs fail
// here. renew() makes the rail usable again.
void PeerRail::break_down(const std::string& cause, bool flushed_untouched, bool peer_may_be_gone) {
  if (state_ != State::up) return;
  state_ = State::broken;
  ++epoch_;
  break_cause_ = cause;
  last_broken_job_ = last_job_;
  if (!served_) fruitless_.store(true, std::memory_order_relaxed);
  group_->set_serving(rail(), false);
  if (group_->rails() > 1) group_->unsettle(rail());
  flushed_untouched_ = flushed_untouched;
  peer_may_be_gone_ = peer_may_be_gone;
  stats_.broken.fetch_add(1, std::memory_order_relaxed);
  try {
    queue_pair_->to_error();  // no-op when it is there already
  } catch (const std::exception& error) {
    report(error.what());
  }
  cut_off_jobs();
}

void PeerRail::on_post_refused(int error) {
  // Whether the chain was posted is unknown: destroying the queue pair decides it.
  const std::string cause = errno_message("posting was refused", error);
  break_down(cause, /*flushed_untouched=*/false, /*peer_may_be_gone=*/false);
  fail_chains(send_queue_.next_ticket(), IBV_WC_GENERAL_ERR);
  report_if_drained();  // no completion may follow
}

void PeerRail::fail_chains(std::uint64_t last_ticket, ibv_wc_status status) {
  const bool flushed = status == IBV_WC_WR_FLUSH_ERR;
  PostedChain chain;
  std::uint64_t ticket = 0;
  while (send_queue_.pop_until(last_ticket, chain, ticket)) {
    if (!chain.transfer) continue;
    const bool untouched = flushed ? flushed_untouched_ : refused_in_order(status);
    Effect effect = untouched ? Effect::nothing : Effect::all;
    // Earlier requests, in the chain or before it, may have been executed; and one of several
    // packets may have been refused in the middle, when its memory was closed. A single packet is
    // refused as a whole, unless the responder reports that it failed to execute it.
    const bool whole = chain.requests == 1 && chain.transfer->nbytes() <= mtu_nbytes_ &&
                       status != IBV_WC_REM_OP_ERR;
    if (untouched && (chain.transfer->progressed() || (!flushed && !whole))) {
      effect = Effect::some;
    }
    cut_off(chain.transfer, effect, status);
  }
}

// Drops the hold of a transfer that will not be executed, now or once the reason is known.
void PeerRail::cut_off(const std::shared_ptr<Transfer>& transfer, Effect effect, int code) {
  if (transfer->striped() && effect == Effect::nothing) effect = Effect::some;
  if (transfer->placed()) effect = Effect::all;
  if (state_ == State::closed) {
    transfer->fail(close_reason_(effect));
    return transfer->drop();
  }
  if (peer_may_be_gone_) {
    undecided_.push_back({transfer, effect, code});
    return;
  }
  const std::string what = code == IBV_WC_WR_FLUSH_ERR
                               ? "' was cut off by an earlier error of its queue pair: "
                               : "' failed: ";
  transfer->fail(verbs_failure("transfer with peer '" + group_->peer_name + what + break_cause_,
                               code, effect));
  transfer->drop();
}

void PeerRail::cut_off_jobs() {
  std::list<Job> jobs = std::exchange(jobs_, {});
  jobs_waiting_.store(0);
  for (Job& job : jobs) {
    cut_off(job.transfer(), effect_of_cutting(job), IBV_WC_WR_FLUSH_ERR);
  }
  for (const auto& [id, offer] : std::exchange(offers_, {})) drop_offer(offer);
  group_->matcher.drop_offers(rail());
  services_.poller->wake();
}

void PeerRail::drop_offer(const Offer& offer) {
  if (state_ != State::closed && peer_may_be_gone_) return undecided_offers_.push_back(offer);
  if (state_ == State::closed && offer.is_send) {
    Failure failure = close_reason_(Effect::all);
    failure.explain("; no recv() there had taken this send()");
    offer.transfer->fail(std::move(failure));
    stats_.sends_dropped.fetch_add(1, std::memory_order_relaxed);
  }
  cut_off(offer.transfer, Effect::all, IBV_WC_WR_FLUSH_ERR);
}

// The peer answered with a fresh queue pair, so only the old one failed, not the peer.
void PeerRail::decide() {
  peer_may_be_gone_ = false;
  for (const Offer& offer : std::exchange(undecided_offers_, {})) drop_offer(offer);
  for (const Undecided& cut : std::exchange(undecided_, {})) {
    cut_off(cut.transfer, cut.effect, cut.code);
  }
}

void PeerRail::report_if_drained() {
  if (state_ != State::broken || !send_queue_.empty() || break_reported_) return;
  break_reported_ = true;
  count_as_done(last_broken_job_);
  needs_renewal_();
}

// All jobs up to that one have failed; fails the messages that had to follow them.
void PeerRail::count_as_done(std::uint64_t upto) {
  const std::uint64_t before = jobs_done_;
  if (before >= upto) return;
  jobs_done_ = upto;
  group_->fail_followers(rail(), before, upto);
}

// Fails the queued messages here that had to follow jobs (before, upto] of another rail.
void PeerRail::fail_followers_of(RailIndex other, std::uint64_t before, std::uint64_t upto) {
  const auto follows = [&](const Job& job) {
    return job.fence() != nullptr && (*job.fence())[other] > before &&
           (*job.fence())[other] <= upto;
  };
  PeerRail& failed = *group_->at(other);
  std::erase_if(jobs_, [&](Job& job) {
    if (!follows(job)) return false;
    failed.cut_off(job.transfer(), effect_of_cutting(job), IBV_WC_WR_FLUSH_ERR);
    return true;
  });
  jobs_waiting_.store(jobs_.size());
}

bool PeerRail::close(Reason reason) {
  services_.poller->flush();  // so that received data is not lost with the connection
  std::unique_ptr<rdma::QueuePair> queue_pair;
  std::shared_ptr<rdma::Connection> connection;
  {
    const std::lock_guard lock(group_->mutex);
    if (state_ == State::closed) return false;
    if (state_ == State::up && group_->rails() > 1) group_->unsettle(rail());
    state_ = State::closed;
    close_reason_ = reason;
    queue_pair = std::move(queue_pair_);
    connection = std::move(connection_);
    group_->set_serving(rail(), false);
    fruitless_.store(true, std::memory_order_relaxed);
  }
  // From here on the device accesses no memory of this rail.
  if (queue_pair) end_queue_pair(std::move(queue_pair), std::move(connection));
  entries_.deregister();

  const std::lock_guard lock(group_->mutex);
  PostedChain chain;
  while (send_queue_.pop(chain)) {
    if (chain.transfer) cut_off(chain.transfer, Effect::all, IBV_WC_WR_FLUSH_ERR);
  }
  decide();
  cut_off_jobs();
  if (group_->open_rails() == 0) {
    for (PostedReceive& receive : group_->matcher.take_receives()) {
      receive.transfer->fail(reason(Effect::nothing));
      receive.transfer->drop();
    }
  }
  count_as_done(last_job_);
  services_.poller->wake();
  return true;
}

}  // namespace zerohop::engine
