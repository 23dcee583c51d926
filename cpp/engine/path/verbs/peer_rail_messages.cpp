// Incoming messages of a rail: notifications, and the two-sided send and recv.
#include <arpa/inet.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "engine/path/verbs/peer_rail.hpp"

namespace zerohop::engine {
namespace {

constexpr std::size_t kMaxWaiting = std::size_t{64} << 20;  // bytes of eager payload without a recv
constexpr std::uint32_t kNotifyNbytes = 16;                 // a notification ends with the tag
constexpr const char* kEnded = "the group of this recv is closed";

[[noreturn]] void refuse_message(const std::string& cause) {
  throw ProtocolError("the peer sent an invalid message: " + cause);
}

Message decode(std::span<const std::byte> bytes) {
  Message message{};
  if (bytes.size() < kNotifyNbytes) refuse_message("it is truncated");
  std::memcpy(&message, bytes.data(), std::min(bytes.size(), sizeof message));
  if (!is_notification(message.kind) && bytes.size() < sizeof message)
    refuse_message("it is truncated");
  return message;
}

// The peer could not, or refused to, copy all or some of the requested data.
Failure failure_at_peer(const std::string& peer, std::uint32_t value) {
  if (value == IBV_WC_REM_ABORT_ERR) {
    return Failure{.kind = Failure::Kind::peer_lost,
                   .message = "peer '" + peer + "' has left the group, and did not receive it"}
        .with_effect(Effect::nothing);
  }
  const bool refused = value == IBV_WC_REM_ACCESS_ERR;
  const auto status = refused ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_OP_ERR;
  return Failure{.kind = Failure::Kind::verbs,
                 .message = "transfer with peer '" + peer +
                            "' failed: " + rdma::completion_status_name(status) + ": " +
                            (refused ? "its memory was closed by its owner, or never shared"
                                     : "its copies of GPU memory failed there"),
                 .code = status}
      .with_effect(refused ? Effect::nothing : Effect::some);
}

}  // namespace

void PeerRail::on_receive(const ibv_wc& completion) {
  if (state_ == State::unconnected) on_first_message();
  std::uint32_t count = completion.imm_data;
  const bool is_count = completion.opcode == IBV_WC_RECV && completion.byte_len == sizeof count;
  if (is_count) std::memcpy(&count, receives_->message(completion).data(), sizeof count);
  if (is_count || completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    const std::uint32_t more = ::ntohl(count) - messages_taken_by_peer_;
    // Each uses a buffer that all Peers share. Only a probe gives none: once per queue pair.
    if (more == 0 && std::exchange(probe_came_, true)) refuse_message("it gives no credit");
    on_credits(more);
  } else {
    on_message(receives_->message(completion));
  }
}

// The peer has taken `more` messages since its last report.
void PeerRail::on_credits(std::uint32_t more) {
  if (more > messages_sent_ - messages_taken_by_peer_)
    refuse_message("it acknowledges more messages than were sent");
  messages_taken_by_peer_ += more;
  if (asked_ && static_cast<std::int32_t>(messages_taken_by_peer_ - *asked_) >= 0) asked_.reset();
}

void PeerRail::on_message(std::span<const std::byte> bytes) {
  // All peers share the buffers: a peer that exceeds its credits would take them from others.
  if (messages_taken_ + messages_held_ - messages_reported_ >= services_.messages.slots)
    refuse_message("it exceeds its credits");
  const Message message = decode(bytes);
  on_credits(static_cast<std::uint16_t>(message.taken - messages_taken_by_peer_));
  handle(message, bytes.subspan(std::min<std::size_t>(bytes.size(), sizeof message)));
  stats_.messages_in.fetch_add(1, std::memory_order_relaxed);
  if (group_->matcher.waiting_nbytes() > kMaxWaiting) {
    ++messages_held_;  // the sender runs out of credits and waits for a recv here
  } else {
    ++messages_taken_;
  }
}

void PeerRail::handle(const Message& message, std::span<const std::byte> payload) {
  switch (message.kind) {
    case MessageKind::notify_and_tell: tell_soon_ = true; [[fallthrough]];
    case MessageKind::notify:
      if (message.tag >= Board::kSlots || message.value == 0)
        refuse_message("a notification out of range");
      // Counted first, so that a reader of the value sees it counted.
      stats_.notifications_in.fetch_add(1, std::memory_order_relaxed);
      services_.board->put(slot_of(message), message.value);
      services_.poller->wake();
      return;
    case MessageKind::eager:
      if (message.nbytes != payload.size())
        refuse_message("its payload does not have the stated size");
      return on_data_message({message, {payload.begin(), payload.end()}, rail()});
    case MessageKind::offer:
      if (!payload.empty() && payload.size() != sizeof(std::uint64_t))
        refuse_message("its key is invalid");
      return on_data_message({message, {payload.begin(), payload.end()}, rail()});
    case MessageKind::sealed_eager:
    case MessageKind::sealed_offer: return on_sealed(message, payload);
    case MessageKind::taken: return on_taken(message);
    case MessageKind::pull:
    case MessageKind::push: return on_request(message, payload);
  }
  refuse_message("kind " + std::to_string(static_cast<unsigned>(message.kind)));
}

// Without its seal it is an ordinary message.
void PeerRail::on_sealed(Message message, std::span<const std::byte> payload) {
  Seal seal = 0;
  if (payload.size() < sizeof seal) refuse_message("its checksum is missing");
  const auto rest = payload.first(payload.size() - sizeof seal);
  std::memcpy(&seal, payload.data() + rest.size(), sizeof seal);
  const bool eager = message.kind == MessageKind::sealed_eager;
  const bool whole =
      eager ? rest.size() == message.nbytes : rest.empty() || rest.size() == sizeof(std::uint64_t);
  if (!whole) refuse_message("its payload does not have the stated size");
  message.kind = eager ? MessageKind::eager : MessageKind::offer;
  on_data_message({message, {rest.begin(), rest.end()}, rail(), seal});
}

// Whether to ignore a request that expects an answer: it arrived on a queue pair in error. The peer
// gives up on it, and the answer would go to the next queue pair, which does not know the request.
bool PeerRail::is_void() const noexcept { return state_ == State::broken; }

void PeerRail::on_data_message(Arrived&& arrived) {
  if (arrived.message.kind == MessageKind::offer && is_void()) return;
  if (group_->matcher.has_ended(context_of(arrived.message.tag))) return refuse(arrived);
  while (auto receive = group_->matcher.find_receive(arrived.message.tag)) {
    if (const auto refusal = refuse_receive(receive->into, arrived.message.nbytes)) {
      receive->transfer->fail({.kind = Failure::Kind::invalid_argument, .message = *refusal});
      receive->transfer->drop();
      continue;  // the next recv of this tag may fit
    }
    if (receive->seal) *receive->seal = arrived.seal;
    return deliver(*receive, arrived.message, arrived.payload);
  }
  group_->matcher.add(std::move(arrived));
}

// Tells the sender of an offer that no recv will take it.
void PeerRail::refuse(const Arrived& arrived) {
  if (arrived.message.kind != MessageKind::offer) return;
  Job job(std::make_shared<Transfer>(services_.poller, 0, nullptr), IBV_WR_RDMA_WRITE);
  job.then({.kind = MessageKind::taken, .value = IBV_WC_REM_ABORT_ERR, .id = arrived.message.id});
  PeerRail* const came_by = group_->at(arrived.rail);
  if (came_by != nullptr) came_by->enqueue(std::move(job));
}

void PeerRail::end_context(Context context) {
  const std::lock_guard lock(group_->mutex);
  Matcher::Waiting waiting = group_->matcher.end(context);
  for (PostedReceive& receive : waiting.receives) {
    receive.transfer->fail({.message = kEnded});
    receive.transfer->drop();
  }
  for (const Arrived& arrived : waiting.arrived) refuse(arrived);
  group_->release_credits();
}

// If it throws, the recv has failed with the same error: the matcher no longer knows it.
void PeerRail::deliver(PostedReceive& receive, const Message& message,
                       std::span<const std::byte> payload) try {
  receive.transfer->set_result(message.nbytes);
  stats_.bytes_in.fetch_add(message.nbytes, std::memory_order_relaxed);
  const Layout into = receive_part(receive.into, message.nbytes);
  if (message.kind == MessageKind::eager && !receive.gpu) {
    if (!payload.empty()) unpack(payload, into);
    receive.transfer->drop();
    return;
  }
  const bool by_device = payload.empty() && receive.lkeys[rail()] != 0;
  if (message.kind == MessageKind::eager || !by_device) {
    const auto staged = group_->staged.lock();
    if (!staged) throw Error("the Peer is being destroyed");
    return staged->deliver(receive, into, staged_message(message, payload));
  }
  Job job(receive.transfer, IBV_WR_RDMA_READ);
  job.add({.local = into,
           .remote = Layout::contiguous(message.address, into.dtype, into.shape.span()),
           .lkey = receive.lkeys[rail()],
           .rkey = message.value});
  job.then({.kind = MessageKind::taken, .id = message.id});
  enqueue(std::move(job));
} catch (const std::exception&) {
  receive.transfer->fail(Failure::of_current_exception());
  receive.transfer->drop();
  throw;
}

void PeerRail::receive(PostedReceive receive) {
  const std::lock_guard lock(group_->mutex);
  if (group_->matcher.has_ended(context_of(receive.tag))) throw Error(kEnded);
  // A message that arrived before the connection ended is still received.
  auto arrived = group_->matcher.find_arrived(receive.tag);
  if (!arrived && group_->open_rails() == 0) close_reason_(Effect::nothing).raise();
  if (!arrived) return group_->matcher.add(std::move(receive));
  if (const auto refusal = refuse_receive(receive.into, arrived->message.nbytes)) {
    group_->matcher.put_back(std::move(*arrived));
    throw std::invalid_argument(*refusal);
  }
  PeerRail* const came_by = group_->at(arrived->rail);
  if (receive.seal) *receive.seal = arrived->seal;
  (came_by ? came_by : this)->deliver(receive, arrived->message, arrived->payload);
  group_->release_credits();
}

void PeerRail::release_credits() {
  if (state_ != State::up || messages_held_ == 0) return;
  if (group_->matcher.waiting_nbytes() > kMaxWaiting) return;
  messages_taken_ += std::exchange(messages_held_, 0);
  return_credits();
}

void PeerRail::on_taken(const Message& message) {
  const auto found = offers_.find(message.id);
  if (found == offers_.end()) refuse_message("it acknowledges an offer that was never made");
  const std::shared_ptr<Transfer> transfer = std::move(found->second.transfer);
  offers_.erase(found);
  if (message.value != 0) transfer->fail(failure_at_peer(group_->peer_name, message.value));
  transfer->drop();
}

void PeerRail::on_request(const Message& message, std::span<const std::byte> payload) {
  const auto staged = group_->staged.lock();
  if (staged && !is_void()) staged->serve(staged_message(message, payload));
}

}  // namespace zerohop::engine
