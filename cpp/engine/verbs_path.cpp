// Set-up, posting and the end of a path. What completes is in verbs_path_completion.cpp.
#include "engine/verbs_path.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "rdma/verbs_text.hpp"

namespace zerohop::engine {
namespace {

// Kept free in the send queue for returning credits, so that two full ends never wait for each
// other.
constexpr std::uint32_t kReserve = 2;
// Callers wait when this many jobs are in line: memory stays bounded however many they post.
constexpr std::size_t kMaxJobs = 256;
constexpr std::uint32_t kMaxInlineMessage = 64;

PathServices with_reserve(PathServices services) {
  services.options.send_depth += kReserve;
  return services;
}

constexpr std::uint32_t message_header_nbytes(MessageKind kind) {
  // A notification uses no more than the first half of the structure.
  return kind == MessageKind::notify ? 16 : sizeof(Message);
}

}  // namespace

std::shared_ptr<VerbsPath> VerbsPath::create(PathServices services, std::string peer_name,
                                             std::function<void()> on_broken) {
  std::shared_ptr<VerbsPath> path(
      new VerbsPath(std::move(services), std::move(peer_name), std::move(on_broken)));
  path->services_.poller->attach(path->queue_pair_->number(), path, path->completions());
  return path;
}

VerbsPath::VerbsPath(PathServices services, std::string peer_name, std::function<void()> on_broken)
    : services_(with_reserve(std::move(services))),
      peer_name_(std::move(peer_name)),
      on_broken_(std::move(on_broken)),
      buffers_(services_.domain, services_.options.send_depth),
      queue_pair_(make_queue_pair()),
      // The depth asked for, on which the buffers and the completion queue count, even where the
      // device grants more.
      send_queue_(std::min(services_.options.send_depth, queue_pair_->options().send_depth)) {
  const ibv_port_attr port = services_.domain->device().port_attributes();
  limits_ = {.max_sge = queue_pair_->options().send_sge,
             .inline_bytes = queue_pair_->options().inline_bytes,
             .max_message = port.max_msg_sz};
}

VerbsPath::~VerbsPath() = default;

int VerbsPath::completions() const noexcept {
  return static_cast<int>(services_.options.send_depth + PathBuffers::kReceiveSlots);
}

std::unique_ptr<rdma::QueuePair> VerbsPath::make_queue_pair() {
  const auto& queue = services_.poller->queue();
  rdma::QueuePairOptions options = services_.options;
  options.receive_depth = PathBuffers::kReceiveSlots;
  auto queue_pair = rdma::QueuePair::create(services_.domain, queue, queue, options);
  queue_pair->to_init();
  for (std::uint32_t i = 0; i < PathBuffers::kReceiveSlots; ++i) post_receive_slot(*queue_pair, i);
  return queue_pair;
}

void VerbsPath::post_receive_slot(rdma::QueuePair& queue_pair, std::uint32_t slot) {
  ibv_sge element{.addr = reinterpret_cast<std::uint64_t>(buffers_.receive_slot(slot).data()),
                  .length = PathBuffers::kSlotBytes,
                  .lkey = buffers_.slots_lkey()};
  ibv_recv_wr request{};
  request.wr_id = kReceiveBit | slot;
  request.sg_list = &element;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int error = queue_pair.post_receive(request, &bad); error != 0) {
    throw VerbsError(errno_message("cannot post a receive slot", error), error);
  }
}

PathTerms VerbsPath::terms() const {
  const std::lock_guard lock(mutex_);
  return {.queue_pair = queue_pair_->address(),
          .receive_slots = PathBuffers::kMessageSlots,
          .slot_nbytes = PathBuffers::kSlotBytes};
}

void VerbsPath::connect(const PathTerms& remote) {
  if (remote.receive_slots < 4 || remote.slot_nbytes < sizeof(Message)) {
    throw ProtocolError("peer '" + peer_name_ +
                        "' offers no receive slots: it runs another version");
  }
  const std::lock_guard lock(mutex_);
  if (state_ != State::unconnected) return;
  remote_ = remote;
  mtu_nbytes_ = rdma::mtu_bytes(rdma::agree(queue_pair_->address(), remote.queue_pair).mtu);
  decide();  // it lives
  try {
    queue_pair_->connect(remote.queue_pair);
  } catch (const VerbsError&) {
    // From RTR on the peer's requests are served, and a bad one ends the queue pair before RTS.
    if (queue_pair_->state() != IBV_QPS_ERR) throw;
    state_ = State::broken;
    return report_if_drained();
  }
  state_ = State::up;
  advance_jobs();
}

void VerbsPath::reconnect(const rdma::QueuePairAddress& remote) {
  PathTerms terms;
  {
    const std::lock_guard lock(mutex_);
    terms = remote_;
  }
  terms.queue_pair = remote;
  connect(terms);
}

void VerbsPath::abandon(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  break_down(cause, /*flushed_untouched=*/false, /*peer_may_be_gone=*/false);
  report_if_drained();
}

void VerbsPath::renew() {
  services_.poller->flush();  // what the old queue pair received is delivered before it goes
  auto fresh = make_queue_pair();
  services_.poller->attach(fresh->number(), shared_from_this(), completions());
  std::unique_ptr<rdma::QueuePair> old;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::closed) {
      old = std::move(fresh);
    } else {
      old = std::exchange(queue_pair_, std::move(fresh));
      state_ = State::unconnected;
      break_reported_ = false;
      messages_sent_ = messages_taken_by_peer_ = messages_taken_ = messages_reported_ = 0;
      send_slots_used_ = 0;
      held_slots_.clear();
    }
  }
  services_.poller->detach(old->number(), completions());
}

std::uint32_t VerbsPath::eager_limit() const noexcept {
  const std::lock_guard lock(mutex_);
  return std::min(PathBuffers::kSlotBytes, remote_.slot_nbytes) - sizeof(Message);
}

bool VerbsPath::idle() const {
  const std::lock_guard lock(mutex_);
  return send_queue_.empty() && jobs_.empty();
}

Settings VerbsPath::settings() const {
  const std::lock_guard lock(mutex_);
  if (!queue_pair_) return {};  // closed
  Settings all = settings_of(*queue_pair_, remote_.slot_nbytes > 0 ? &remote_.queue_pair : nullptr);
  all.emplace_back("send_depth", services_.options.send_depth - kReserve);
  return all;
}

void VerbsPath::submit(Job&& job, const Deadline& deadline) {
  {
    const std::lock_guard lock(mutex_);
    enqueue(std::move(job));
  }
  if (jobs_waiting_.load(std::memory_order_relaxed) <= kMaxJobs) return;
  // The job is accepted whatever becomes of this wait: a peer that takes nothing is found out by
  // its heartbeat, and its Transfer tells the caller.
  services_.poller->wait([this] { return jobs_waiting_.load() <= kMaxJobs / 2; }, deadline);
}

void VerbsPath::offer(std::shared_ptr<Transfer> transfer, const Message& message,
                      const Deadline& deadline) {
  Job job(transfer, IBV_WR_RDMA_WRITE);
  {
    const std::lock_guard lock(mutex_);
    Message numbered = message;
    numbered.id = next_offer_++;
    job.then(numbered);
    transfer->hold();  // dropped when the peer has taken it
    offers_.emplace(numbered.id, transfer);
    enqueue(std::move(job));
  }
  services_.poller->wait([this] { return jobs_waiting_.load() <= kMaxJobs; }, deadline);
}

// With the mutex held, as all that follows.
void VerbsPath::enqueue(Job&& job) {
  if (state_ == State::closed) close_reason_(Effect::nothing).raise();
  if (state_ == State::up && jobs_.empty() && advance(job)) {
    job.transfer()->drop();
    return;
  }
  if (state_ == State::broken && job.started()) {
    return cut_off(job.transfer(), Effect::some, IBV_WC_WR_FLUSH_ERR);
  }
  stats_.queue_full.fetch_add(1, std::memory_order_relaxed);
  jobs_.push_back(std::move(job));
  jobs_waiting_.store(jobs_.size());
}

void VerbsPath::advance_jobs() {
  return_credits();
  if (jobs_.empty()) return;
  while (state_ == State::up && !jobs_.empty() && advance(jobs_.front())) {
    jobs_.front().transfer()->drop();
    jobs_.pop_front();
  }
  const std::size_t before = jobs_waiting_.exchange(jobs_.size());
  if (before > kMaxJobs / 2 && jobs_.size() <= kMaxJobs / 2) services_.poller->wake();
}

// Posts as much of the job as there is room for. True when all of it is posted.
bool VerbsPath::advance(Job& job) {
  while (!job.data_done() || !job.message_done()) {
    if (send_queue_.room() <= kReserve) return false;
    WorkChain chain(send_queue_.room() - kReserve, limits_.max_sge);
    PostedChain posted{.transfer = job.transfer(), .atomic = job.is_atomic()};
    job.fill(chain, limits_, buffers_.result_element(send_queue_.index(send_queue_.next_ticket())));
    if (job.data_done() && !job.message_done() && !chain.full() && message_allowed(job)) {
      add_message(chain, job, posted);
    }
    if (chain.size() == 0) return job.message_done();  // else it waits for the peer to empty a slot
    post(chain, std::move(posted));
    if (state_ != State::up) return false;
  }
  return true;
}

bool VerbsPath::message_allowed(const Job& job) const noexcept {
  const bool remote_slot_free = messages_sent_ - messages_taken_by_peer_ < remote_.receive_slots;
  const std::size_t nbytes = message_header_nbytes(job.message().kind) + job.payload().size();
  const bool fits_inline = nbytes <= std::min(limits_.inline_bytes, kMaxInlineMessage);
  return remote_slot_free && (fits_inline || send_slots_used_ < PathBuffers::kSendSlots);
}

void VerbsPath::add_message(WorkChain& chain, Job& job, PostedChain& posted) {
  const std::uint32_t header = message_header_nbytes(job.message().kind);
  const auto nbytes = header + static_cast<std::uint32_t>(job.payload().size());
  ibv_send_wr& request = chain.add(IBV_WR_SEND);
  std::byte* bytes = inline_message_.data();
  if (nbytes <= std::min(limits_.inline_bytes, kMaxInlineMessage)) {
    request.send_flags |= IBV_SEND_INLINE;
  } else {
    // Slots are freed in the order they are taken: the queue completes in order.
    bytes = buffers_.send_slot(next_send_slot_++ % PathBuffers::kSendSlots).data();
    ++send_slots_used_;
    posted.message_slot = true;
  }
  Message message = job.message();
  message.taken = static_cast<std::uint16_t>(messages_taken_);
  messages_reported_ = messages_taken_;
  std::memcpy(bytes, &message, header);
  if (!job.payload().empty()) {
    std::memcpy(bytes + header, job.payload().data(), job.payload().size());
  }
  if (job.message_needs_fence()) request.send_flags |= IBV_SEND_FENCE;
  chain.add_element(reinterpret_cast<std::uint64_t>(bytes), nbytes, buffers_.slots_lkey());
  ++messages_sent_;
  job.message_posted();
}

void VerbsPath::post(WorkChain& chain, PostedChain&& posted) {
  const std::uint64_t ticket = send_queue_.next_ticket();
  for (ibv_send_wr* request = &chain.front(); request != nullptr; request = request->next) {
    request->wr_id = ticket;
  }
  // One completion a chain: it retires every request of the chain and all before them.
  chain.back().send_flags |= IBV_SEND_SIGNALED;
  posted.requests = chain.size();
  if (posted.transfer) posted.transfer->hold();
  stats_.work_requests.fetch_add(chain.size(), std::memory_order_relaxed);
  stats_.doorbells.fetch_add(1, std::memory_order_relaxed);
  send_queue_.push(std::move(posted));
  ibv_send_wr* bad = nullptr;
  if (const int error = queue_pair_->post_send(chain.front(), &bad); error != 0) {
    on_post_refused(error);
  }
}

void VerbsPath::return_credits() {
  // Every message of ours tells it along the way; this is for when we send none. Often enough that
  // the peer seldom waits, seldom enough that it costs little.
  constexpr std::uint32_t kEvery = PathBuffers::kMessageSlots / 4;
  if (state_ != State::up || messages_taken_ - messages_reported_ < kEvery) return;
  if (send_queue_.room() == 0) return;  // the next completion makes room and comes back here
  WorkChain chain(1, 1);
  // A write of no bytes: the immediate says it all, and its completion makes the peer go on.
  chain.add(IBV_WR_RDMA_WRITE_WITH_IMM).imm_data = ::htonl(messages_taken_);
  messages_reported_ = messages_taken_;
  post(chain, PostedChain{});
}

}  // namespace zerohop::engine
