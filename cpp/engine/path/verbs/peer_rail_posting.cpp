// Posting on a rail: queued jobs, messages behind the data, credits.
#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "engine/path/call.hpp"
#include "engine/path/verbs/peer_rail.hpp"

namespace zerohop::engine {
namespace {

// Callers wait if this many jobs are queued, which bounds the memory.
constexpr std::size_t kMaxJobs = 256;

constexpr std::uint32_t message_header_nbytes(MessageKind kind) {
  // A notification ends with the tag.
  return is_notification(kind) ? 16 : sizeof(Message);
}

}  // namespace

void PeerRail::submit(Job&& job, const Deadline& deadline) {
  {
    const std::lock_guard lock(group_->mutex);
    enqueue(std::move(job));
  }
  wait_for_room(deadline);
}

bool PeerRail::submit_at_once(const std::shared_ptr<Transfer>& transfer, const Range& range,
                              const std::optional<Message>& message, bool briefly) {
  std::unique_lock lock(group_->mutex, std::defer_lock);
  if (briefly && !lock.try_lock()) return false;
  if (!briefly) lock.lock();
  const bool has_room = may_post() && jobs_.empty() &&
                        send_queue_.room() > reserve() + least_room() && send_queue_.make_room();
  const bool is_read = range.opcode == IBV_WR_RDMA_READ;
  if (!has_room || range.run.nbytes > limits_.most_of(range.run, is_read)) return false;
  if (limits_.confirms && send_queue_.reads() + reserve() > limits_.max_reads) return false;
  if (message && !peer_takes_message()) return false;
  const bool moves = range.run.nbytes > 0;
  const bool is_write = range.opcode == IBV_WR_RDMA_WRITE;
  if (limits_.confirms && moves && message && !is_write) return false;  // it must wait for the read
  count_operation(*transfer, range.opcode, moves, message.has_value(), group_->peer_name);
  stats_.count(range.opcode, range.run.nbytes);
  group_->stir();
  WorkChain chain(2, 1);
  if (moves) {
    ibv_send_wr& request = chain.add(range.opcode);
    request.wr.rdma.remote_addr = range.run.b_address;
    request.wr.rdma.rkey = range.rkey;
    chain.add_element(range.run.a_address, static_cast<std::uint32_t>(range.run.nbytes),
                      range.lkey);
    if (is_write && range.run.nbytes <= limits_.inline_bytes) {
      request.send_flags |= IBV_SEND_INLINE;
    }
    if (is_write && !services_.rail->software()) bare_writes_ = true;
  }
  PostedChain posted{.transfer = transfer, .job = ++last_job_};  // takes over the only hold
  if (message) {
    add_message(chain, *message, {}, posted);
    if (!is_write) chain.back().send_flags |= IBV_SEND_FENCE;
  }
  post(chain, std::move(posted));
  return true;
}

void PeerRail::submit_message(Job&& job, const Deadline& deadline) {
  submit_message(std::move(job)).wait_for_room(deadline);
}

PeerRail& PeerRail::submit_message(Job&& job) {
  const std::lock_guard lock(group_->mutex);
  PeerRail& taken = message_rail();
  taken.put_message(std::move(job));
  return taken;
}

void PeerRail::put_message(Job&& job) {
  job.await(group_->make_fence(rail()));
  enqueue(std::move(job));
}

// With the lock held.
PeerRail& PeerRail::message_rail() noexcept {
  PeerRail* const peer_rail = group_->at(group_->message_rail());
  return peer_rail ? *peer_rail : *this;
}

bool PeerRail::has_room() const noexcept {
  return jobs_waiting_.load(std::memory_order_relaxed) <= kMaxJobs;
}

void PeerRail::wait_for_room(const Deadline& deadline) {
  if (has_room()) return;
  // The job is accepted however this wait ends: the heartbeat detects a peer that takes nothing,
  // and the Transfer reports it to the caller.
  services_.poller->wait([this] { return jobs_waiting_.load() <= kMaxJobs / 2; }, deadline);
}

void PeerRail::offer(const std::shared_ptr<Transfer>& transfer, const Message& message,
                     const RailKeys& rkeys, SendBuffer payload, const Deadline& deadline) {
  PeerRail* taken = this;
  {
    const std::lock_guard lock(group_->mutex);
    taken = &message_rail();
    taken->put_offer(transfer, message, rkeys, std::move(payload));
  }
  taken->wait_for_room(deadline);
}

void PeerRail::put_offer(const std::shared_ptr<Transfer>& transfer, const Message& message,
                         const RailKeys& rkeys, SendBuffer payload) {
  if (state_ == State::closed) close_reason_(Effect::nothing).raise();
  const bool staged =
      payload.payload().size() >= sizeof(std::uint64_t);  // its key, before the seal
  if (!staged && rkeys[rail()] == 0) {
    throw VerbsError("the device that now carries messages to peer '" + group_->peer_name +
                     "' does not reach the memory of this send(): try again");
  }
  Job job(transfer, IBV_WR_RDMA_WRITE);
  Message numbered = message;
  numbered.id = next_offer_++;
  numbered.value = rkeys[rail()];
  job.then(numbered, std::move(payload));
  transfer->hold();  // dropped when the peer has taken it
  const bool is_send =
      numbered.kind == MessageKind::offer || numbered.kind == MessageKind::sealed_offer;
  offers_.emplace(numbered.id, Offer{transfer, is_send});
  put_message(std::move(job));
}

// With the lock held, like everything below.
void PeerRail::enqueue(Job&& job) {
  if (state_ == State::closed) close_reason_(Effect::nothing).raise();
  group_->stir();
  job.set_number(++last_job_);
  if (may_post() && jobs_.empty() && advance(job)) return finish(job);
  if (state_ == State::broken && job.started()) {
    return cut_off(job.transfer(), Effect::some, IBV_WC_WR_FLUSH_ERR);
  }
  stats_.queue_full.fetch_add(1, std::memory_order_relaxed);
  jobs_.push_back(std::move(job));
  jobs_waiting_.store(jobs_.size());
}

void PeerRail::advance_jobs() {
  return_credits();
  if (jobs_.empty()) return;
  while (may_post() && !jobs_.empty() && advance(jobs_.front())) {
    finish(jobs_.front());
    jobs_.pop_front();
  }
  const std::size_t before = jobs_waiting_.exchange(jobs_.size());
  if (before > kMaxJobs / 2 && jobs_.size() <= kMaxJobs / 2) services_.poller->wake();
}

// All of the job is posted.
void PeerRail::finish(Job& job) {
  if (!send_queue_.end_job(job.number())) jobs_done_ = job.number();
  job.transfer()->drop();
}

void PeerRail::advance_waiting() {
  if (state_ == State::up && !jobs_.empty()) advance_jobs();
}

// Posts as much of the job as fits. True if all of it is posted.
bool PeerRail::advance(Job& job) {
  while (!job.data_done() || !job.message_done()) {
    const std::uint32_t room = room_for(job);
    if (room < least_room() || !send_queue_.make_room()) return false;
    WorkChain chain = limits_.chain(room, job.is_read() ? limits_.max_read_sge : limits_.max_sge);
    PostedChain posted{.transfer = job.transfer(), .atomic = job.is_atomic()};
    const std::uint64_t ticket = send_queue_.next_ticket();
    job.fill(chain, limits_, entries_.result_element(send_queue_.index(send_queue_.next_ticket())));
    if (job.is_bare_write() && !services_.rail->software()) bare_writes_ = true;
    if (job.data_done() && !job.message_done() && !chain.full() && message_allowed(job, chain)) {
      add_message(chain, job.message(), job.take_payload(), posted);
      if (job.is_read() && !limits_.confirms) chain.back().send_flags |= IBV_SEND_FENCE;
      job.message_posted();
    }
    if (chain.size() == 0) return job.message_done();  // else it waits for credits
    if (job.is_read() && !job.message_done()) reads_end_ = ticket + 1;
    job.transfer()->hold();
    post(chain, std::move(posted));
    if (state_ != State::up) return false;
  }
  return true;
}

// How many entries the next chain of the job may take, with the one that confirms it.
std::uint32_t PeerRail::room_for(const Job& job) const noexcept {
  const std::uint32_t room = send_queue_.room() - std::min(reserve(), send_queue_.room());
  if (!limits_.confirms) return room;
  const std::uint32_t busy = send_queue_.reads() + reserve();
  const std::uint32_t reads = limits_.max_reads - std::min(busy, limits_.max_reads);
  return job.is_read() || reads < 2 ? std::min(room, reads) : room;
}

bool PeerRail::message_allowed(const Job& job, const WorkChain& chain) const noexcept {
  if (job.fence() != nullptr && !group_->passed(*job.fence())) return false;
  if (limits_.confirms && job.is_read()) {  // a fence of ours
    if (chain.size() > 0 || !send_queue_.retired_before(reads_end_)) return false;
  }
  return peer_takes_message();
}

void PeerRail::add_message(WorkChain& chain, Message message, SendBuffer payload,
                           PostedChain& posted) {
  message.taken = static_cast<std::uint16_t>(messages_taken_);
  messages_reported_ = messages_taken_;
  tell_soon_ = tell_soon_ && messages_held_ > 0;
  if (message.kind == MessageKind::notify_and_tell) {
    // One request at a time, because the receive slots allow only one such answer.
    if (asked_) message.kind = MessageKind::notify;
    if (!asked_) asked_ = messages_sent_ + 1;
  }
  ++messages_sent_;
  bare_writes_ = false;
  const std::uint32_t header = message_header_nbytes(message.kind);
  const std::span<const std::byte> behind = payload.payload();
  const auto nbytes = header + static_cast<std::uint32_t>(behind.size());
  chain.add(IBV_WR_SEND);
  if (nbytes > EntryMemory::kShort) {
    std::memcpy(payload.begin(), &message, header);
    chain.add_element(reinterpret_cast<std::uint64_t>(payload.begin()), nbytes,
                      payload.lkey(rail()));
    posted.message = std::move(payload);
    return;
  }
  std::byte* const bytes = add_short(chain, nbytes);
  std::memcpy(bytes, &message, header);
  if (!behind.empty()) std::memcpy(bytes + header, behind.data(), behind.size());
}

// Room for the bytes of the chain's last request, a send: they are read when it is posted, or they
// lie in registered memory until it has completed.
std::byte* PeerRail::add_short(WorkChain& chain, std::uint32_t nbytes) noexcept {
  const bool inlined = nbytes <= limits_.inline_bytes;
  std::byte* const bytes = inlined ? inline_message_.data()
                                   : entries_.message(send_queue_.index(send_queue_.next_ticket()));
  if (inlined) chain.back().send_flags |= IBV_SEND_INLINE;
  chain.add_element(reinterpret_cast<std::uint64_t>(bytes), nbytes, entries_.lkey());
  return bytes;
}

void PeerRail::post(WorkChain& chain, PostedChain&& posted) {
  const std::uint64_t ticket = send_queue_.next_ticket();
  if (limits_.confirms) {
    ibv_send_wr& request = chain.add(IBV_WR_RDMA_READ);
    request.wr.rdma.remote_addr = remote_.queue_pair.managed.word;
    request.wr.rdma.rkey = remote_.queue_pair.managed.word_key;
    const ibv_sge sink = entries_.result_element(send_queue_.index(ticket));
    chain.add_element(sink.addr, 1, sink.lkey);  // not 0: siw's answers then have any size
  }
  for (ibv_send_wr* request = &chain.front(); request != nullptr; request = request->next) {
    request->wr_id = ticket;
  }
  // One completion per chain: it retires every request of the chain and all earlier ones.
  chain.back().send_flags |= IBV_SEND_SIGNALED;
  posted.requests = chain.size();
  for (const ibv_send_wr* request = &chain.front(); request != nullptr; request = request->next) {
    posted.reads += request->opcode == IBV_WR_RDMA_READ ? 1 : 0;
  }
  if (posted.transfer) posted.transfer->note_begun();
  stats_.work_requests.fetch_add(chain.size(), std::memory_order_relaxed);
  stats_.doorbells.fetch_add(1, std::memory_order_relaxed);
  send_queue_.push(std::move(posted));
  ibv_send_wr* bad = nullptr;
  if (const int error = queue_pair_->post_send(chain.front(), &bad); error != 0) {
    on_post_refused(error);
  }
}

void PeerRail::return_credits() {
  // Every message we send carries the credits; this is for when we send none.
  const std::uint32_t enough = tell_soon_ ? 1 : services_.messages.credit_every();
  if (state_ != State::up || messages_taken_ - messages_reported_ < enough) return;
  // The next completion makes room and calls this again.
  if (send_queue_.room() < 2 || !has_room_for_confirmation() || !send_queue_.make_room()) return;
  messages_reported_ = messages_taken_;
  tell_soon_ = tell_soon_ && messages_held_ > 0;
  post_credits(PostedChain{});
}

// A write of no bytes: the immediate carries the count, and its completion lets the peer continue.
// iWARP has no immediate: a send of nothing but the count.
void PeerRail::post_credits(PostedChain&& posted) {
  WorkChain chain(1, 1);
  const std::uint32_t count = ::htonl(messages_taken_);
  if (!services_.rail->is_iwarp()) {
    chain.add(IBV_WR_RDMA_WRITE_WITH_IMM).imm_data = count;
  } else {
    chain.add(IBV_WR_SEND);
    std::memcpy(add_short(chain, sizeof count), &count, sizeof count);
  }
  post(chain, std::move(posted));
}

// A fresh queue pair connects even over a cut wire: the rail works again once a write of no bytes
// has completed.
void PeerRail::post_probe() {
  probing_ = true;
  post_credits(PostedChain{.transfer = {}, .probe = true});
}

}  // namespace zerohop::engine
