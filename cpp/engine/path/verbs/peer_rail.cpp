// Set-up, repair and the state of a rail. Posting is in peer_rail_posting.cpp, completion in
// peer_rail_completion.cpp.
#include "engine/path/verbs/peer_rail.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/report.hpp"
#include "rdma/verbs_text.hpp"

namespace zerohop::engine {
namespace {

// Call it without the lock: it calls the driver.
LocalEnd ask_local_end(const rdma::QueuePair& queue_pair, const Rail& rail,
                       const ReceivePool& receives) {
  LocalEnd end{.address = queue_pair.address(),
               .link_layer = queue_pair.device().port_attributes().link_layer};
  if (const auto manager = rail.manager()) {
    end.address.managed = receives.word();
    end.address.managed.port = manager->port();
  }
  return end;
}

}  // namespace

std::shared_ptr<PeerRail> PeerRail::create(RailServices services, std::shared_ptr<RailGroup> group,
                                           std::function<void()> needs_renewal) {
  std::shared_ptr<PeerRail> peer_rail(
      new PeerRail(std::move(services), std::move(group), std::move(needs_renewal)));
  peer_rail->services_.poller->attach(peer_rail->rail(), peer_rail->queue_pair_->number(),
                                      peer_rail, peer_rail->completions());
  const std::lock_guard lock(peer_rail->group_->mutex);
  peer_rail->group_->add(peer_rail->rail(), peer_rail.get());
  return peer_rail;
}

RailServices PeerRail::with_reserve(RailServices services) {
  services.options.send_depth += beyond_send_depth(*services.rail);
  return services;
}

PeerRail::PeerRail(RailServices services, std::shared_ptr<RailGroup> group,
                   std::function<void()> needs_renewal)
    : services_(with_reserve(std::move(services))),
      receives_(ReceivePool::join(services_.receives[services_.rail->index()])),
      group_(std::move(group)),
      needs_renewal_(std::move(needs_renewal)),
      queue_pair_(make_queue_pair()),
      entries_(services_.rail->domain(), services_.options.send_depth,
               queue_pair_->options().inline_bytes < EntryMemory::kShort),
      local_(ask_local_end(*queue_pair_, *services_.rail, *receives_)),
      // The requested depth, which buffers and completion queue rely on, even if the device grants
      // more.
      send_queue_(std::min(services_.options.send_depth, queue_pair_->options().send_depth)) {
  limits_.max_message = services_.rail->device().port_attributes().max_msg_sz;
  take_limits();
}

// The limits that the device granted to the queue pair.
void PeerRail::take_limits() {
  limits_.max_sge = queue_pair_->options().send_sge;
  const auto most_read = services_.rail->device().attributes().max_sge_rd;  // 0: does not say
  limits_.max_read_sge = most_read > 0
                             ? std::min(limits_.max_sge, static_cast<std::uint32_t>(most_read))
                             : limits_.max_sge;
  limits_.confirms = services_.rail->is_iwarp();
  limits_.inline_bytes = queue_pair_->options().inline_bytes;
}

PeerRail::~PeerRail() {
  const std::lock_guard lock(group_->mutex);
  group_->remove(rail());
}

int PeerRail::completions() const noexcept {
  return static_cast<int>(services_.options.send_depth);
}

std::shared_ptr<DirectQueuePair> PeerRail::make_direct_queue_pair(
    const RingPlaces& places, const std::shared_ptr<const gpu::Device>& gpu,
    const Deadline& deadline) const {
  return std::make_shared<DirectQueuePair>(*services_.rail, services_.options, places, gpu,
                                           deadline);
}

std::shared_ptr<DirectTarget> PeerRail::make_direct_target(
    const rdma::QueuePairAddress& source) const {
  return std::make_shared<DirectTarget>(*services_.rail, services_.options, services_.board,
                                        source);
}

std::unique_ptr<rdma::QueuePair> PeerRail::make_queue_pair() {
  const auto queue = services_.poller->queue(rail());
  auto queue_pair = rdma::QueuePair::create(services_.rail->domain(), queue, queue,
                                            services_.options, receives_->queue());
  queue_pair->to_init();
  return queue_pair;
}

// The error state returns the buffer of a message that is being received.
void PeerRail::end_queue_pair(std::unique_ptr<rdma::QueuePair> queue_pair,
                              std::shared_ptr<rdma::Connection> connection) {
  try {
    queue_pair->to_error();
  } catch (const VerbsError& error) {
    if (!services_.rail->gone()) report(error.what());
  }
  connection.reset();  // it holds on to its queue pair
  services_.poller->flush();
  services_.poller->detach(rail(), queue_pair->number(), completions());
}

RailTerms PeerRail::terms() const {
  const std::lock_guard lock(group_->mutex);
  // A closed rail has none: the peer needs no number of it.
  return {.queue_pair = queue_pair_ ? local_.address : rdma::QueuePairAddress{},
          .receive_slots = services_.messages.slots,
          .slot_nbytes = services_.messages.slot_nbytes()};
}

void PeerRail::connect(const RailTerms& remote, bool dials) {
  constexpr std::uint32_t kLeast = sizeof(Message) + MessageWindow::kLeastBytes;
  if (remote.receive_slots == 0 || remote.receive_slots > MessageWindow::kMostSlots ||
      remote.slot_nbytes < kLeast) {
    throw ProtocolError("peer '" + group_->peer_name + "' takes " +
                        std::to_string(remote.receive_slots) + " messages of " +
                        std::to_string(remote.slot_nbytes) +
                        " bytes at a time, which no correct peer says: install the same zerohop "
                        "on both sides");
  }
  const std::lock_guard lock(group_->mutex);
  if (state_ != State::unconnected) return;
  remote_ = remote;
  group_->set_eager_limit(std::min(services_.messages.slot_nbytes(), remote.slot_nbytes) -
                          sizeof(Message));
  mtu_nbytes_ = rdma::mtu_bytes(rdma::agree(local_.address, remote.queue_pair).mtu);
  // A few more than any chain needs; adapters that have fewer let requests wait, and answer reads.
  limits_.max_reads = std::max<std::uint32_t>(
      rdma::agree(local_.address, remote.queue_pair).reads_out, 4 * kReserve);
  decide();  // the peer is alive
  dials_ = dials;
  knows_terms_ = true;
  connect_queue_pair();
}

void PeerRail::serve() {
  group_->set_serving(rail(), true);
  served_ = true;
  fruitless_.store(false, std::memory_order_relaxed);
  services_.poller->wake();
}

void PeerRail::reconnect(const rdma::QueuePairAddress& remote, bool dials) {
  RailTerms terms;
  {
    const std::lock_guard lock(group_->mutex);
    terms = remote_;
  }
  terms.queue_pair = remote;
  connect(terms, dials);
}

void PeerRail::to_error(const std::string& cause) {
  const std::lock_guard lock(group_->mutex);
  put_in_error(cause);
}

void PeerRail::on_last_receive() {
  services_.poller->flush();  // completions give a better reason
  const std::lock_guard lock(group_->mutex);
  break_down("the device put its queue pair in error", /*flushed_untouched=*/false,
             /*peer_may_be_gone=*/true);
  report_if_drained();
}

void PeerRail::put_in_error(const std::string& cause) {
  break_down(cause, /*flushed_untouched=*/false, /*peer_may_be_gone=*/false);
  report_if_drained();
}

void PeerRail::fail(const std::string& cause) {
  const std::lock_guard lock(group_->mutex);
  if (state_ == State::closed) return;
  decide();  // nothing more will be known about what was cut off
  state_ = State::broken;
  break_cause_ = cause;
  break_reported_ = true;  // the caller knows
  fruitless_.store(true, std::memory_order_relaxed);
  last_broken_job_ = last_job_;
  group_->set_serving(rail(), false);
  cut_off_jobs();
  count_as_done(last_broken_job_);
}

bool PeerRail::drained() const {
  const std::lock_guard lock(group_->mutex);
  return state_ == State::broken && break_reported_;
}

bool PeerRail::unconnected() const {
  const std::lock_guard lock(group_->mutex);
  return state_ == State::unconnected;
}

void PeerRail::settle() {
  const std::lock_guard lock(group_->mutex);
  group_->settle(rail());
}

void PeerRail::decide_alive() {
  const std::lock_guard lock(group_->mutex);
  if (state_ != State::closed) decide();
}

std::string PeerRail::trouble() const {
  const std::lock_guard lock(group_->mutex);
  if (state_ == State::closed) return close_reason_(Effect::nothing).message;
  if (((group_->serving() >> rail()) & 1) != 0) return "";
  if (break_cause_.empty()) return "it is not connected yet";
  return break_cause_ + (state_ == State::up ? "; its repair is being tested" : "");
}

// Call it without the lock: a driver may take long. The rail may be closed meanwhile.
void PeerRail::renew() {
  services_.poller->flush();  // deliver what the old queue pair received before it is destroyed
  {
    const std::lock_guard lock(group_->mutex);
    if (state_ == State::closed) return;
  }
  auto fresh = make_queue_pair();
  const rdma::QueuePairOptions& granted = fresh->options();
  if (granted.send_depth < send_queue_.depth() ||
      (granted.inline_bytes < EntryMemory::kShort && !entries_.has_messages())) {
    throw VerbsError("the device grants fewer work requests than before: close other queue pairs");
  }
  const LocalEnd local = ask_local_end(*fresh, *services_.rail, *receives_);
  services_.poller->attach(rail(), fresh->number(), shared_from_this(), completions());
  std::unique_ptr<rdma::QueuePair> old;
  std::shared_ptr<rdma::Connection> old_connection;
  {
    const std::lock_guard lock(group_->mutex);
    if (state_ == State::closed) {
      old = std::move(fresh);
    } else {
      old = std::exchange(queue_pair_, std::move(fresh));
      old_connection = std::exchange(connection_, nullptr);
      dials_ = knows_terms_ = heard_ = false;
      local_ = local;
      take_limits();
      renewed_ = true;
      state_ = State::unconnected;
      break_reported_ = false;
      served_ = false;
      messages_sent_ = messages_taken_by_peer_ = 0;
      messages_taken_ = messages_held_ = messages_reported_ = 0;
      probe_came_ = false;
      asked_.reset();
      tell_soon_ = false;
      bare_writes_ = false;
    }
  }
  if (old) end_queue_pair(std::move(old), std::move(old_connection));
}

bool PeerRail::idle() const {
  const std::lock_guard lock(group_->mutex);
  return send_queue_.empty() && jobs_.empty();
}

std::uint32_t PeerRail::queue_pair_number() const {
  const std::lock_guard lock(group_->mutex);
  return queue_pair_ ? queue_pair_->number() : 0;
}

std::uint64_t PeerRail::registered_nbytes() const {
  const std::lock_guard lock(group_->mutex);
  return queue_pair_ ? entries_.nbytes() : 0;
}

Settings PeerRail::settings() const {
  const std::lock_guard lock(group_->mutex);
  if (!queue_pair_) return {};  // closed
  Settings all =
      settings_of(*queue_pair_, local_, remote_.slot_nbytes > 0 ? &remote_.queue_pair : nullptr);
  all.emplace_back("send_depth", services_.options.send_depth - beyond_send_depth(*services_.rail));
  all.emplace_back("message_slots_in", services_.messages.slots);
  all.emplace_back("message_slots_out", remote_.receive_slots);
  all.emplace_back("message_bytes", group_->eager_limit());
  return all;
}

}  // namespace zerohop::engine
