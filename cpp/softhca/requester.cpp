#include "softhca/requester.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "softhca/context.hpp"
#include "softhca/frame_writer.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

using wire::Op;

constexpr unsigned kRetryForEver = 7;  // rnr_retry: 7 stands for no limit (man ibv_modify_qp)

// min_rnr_timer codes of IBA table 45, in units of 10 us.
constexpr std::array<std::uint32_t, 32> kTimerCodes = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

Clock::duration timer_of(std::uint16_t code) {
  return std::chrono::microseconds(10) * kTimerCodes[code & 31];
}

bool has_immediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool is_send(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

ibv_wc_status status_of(std::uint16_t refusal) {
  switch (static_cast<wire::Refusal>(refusal)) {
    case wire::Refusal::invalid_request: return IBV_WC_REM_INV_REQ_ERR;
    case wire::Refusal::access: return IBV_WC_REM_ACCESS_ERR;
    case wire::Refusal::operation: return IBV_WC_REM_OP_ERR;
  }
  return IBV_WC_BAD_RESP_ERR;
}

}  // namespace

void Requester::reset() noexcept {
  next_ = offset_ = acknowledged_ = answering_ = answered_nbytes_ = reads_out_ = 0;
  not_ready_tries_ = 0;
  waiting_ = rewinding_ = false;
  stopped_ = IBV_WC_SUCCESS;
}

bool Requester::corrupt() noexcept {
  qp_.fail({.kind = Failure::Kind::corrupt});
  return false;
}

bool Requester::has_work() const noexcept {
  const bool more = next_ != qp_.sends.tail() || rewinding_;
  return more && !waiting_ && stopped_ == IBV_WC_SUCCESS;
}

bool Requester::gathers() const noexcept {
  // In a stream of small requests, one system call should send a frame, not one request. A few
  // requests in flight, as in a dialogue, are never held back.
  constexpr std::uint32_t kOnTheirWay = 16;
  constexpr std::uint32_t kGathered = 32;
  constexpr std::uint32_t kSmall = 4096;  // bytes
  const std::uint32_t tail = qp_.sends.tail();
  return next_ - acknowledged_ >= kOnTheirWay && tail - next_ < kGathered && tail != next_ &&
         qp_.sends.at(tail - 1).nbytes <= kSmall;
}

void Requester::emit(FrameWriter& frame) noexcept {
  if (waiting_ || qp_.state != IBV_QPS_RTS) return;
  if (rewinding_) rewind();
  frame.start_requests(next_, rewinding_);
  const std::uint32_t first = next_;
  std::uint32_t budget = frame.most_payload();
  while (next_ != qp_.sends.tail() && stopped_ == IBV_WC_SUCCESS && budget > 0) {
    if (!emit_one(frame, budget)) break;
  }
  if (next_ != first || offset_ > 0) {
    rewinding_ = false;  // the restart mark is sent with the first request
  } else {
    frame.start_requests(next_, false);
  }
}

// Whether the request may be sent now; records the error if it never can.
bool Requester::may_start(const SendEntry& entry) noexcept {
  const bool awaits = entry.awaits_response();
  if (entry.refusal != IBV_WC_SUCCESS) {
    stop(entry.refusal);
    return false;
  }
  if (entry.fenced && reads_out_ > 0) return false;
  if (awaits && reads_out_ >= qp_.attributes.max_rd_atomic) return false;
  copied_ = false;
  if (entry.inlined) return true;
  const int access = awaits ? IBV_ACCESS_LOCAL_WRITE : 0;
  const Allowed allowed = are_allowed(
      qp_.device.memory, qp_.pd, {qp_.sends.sges(next_), entry.sge_count}, 0, entry.nbytes, access);
  copied_ = allowed == Allowed::copied;
  if (allowed == Allowed::no) stop(IBV_WC_LOC_PROT_ERR);
  return allowed != Allowed::no;
}

void Requester::stop(ibv_wc_status status) noexcept {
  stopped_ = status;
  retire();  // fails now if nothing older is outstanding
}

bool Requester::emit_one(FrameWriter& frame, std::uint32_t& budget) noexcept {
  SendEntry& entry = qp_.sends.at(next_);
  if (!frame.has_room(std::max<std::size_t>(wire::kInlineBytes, sizeof(wire::Operands))))
    return false;
  if (offset_ == 0 && !may_start(entry)) return false;
  if (!entry.awaits_response()) return emit_payload(frame, entry, budget);
  emit_query(frame, entry);
  ++reads_out_;
  ++next_;
  return true;
}

void Requester::emit_query(FrameWriter& frame, const SendEntry& entry) noexcept {
  wire::Packet packet{};
  packet.key = entry.rkey;
  packet.address = entry.remote_address;
  packet.nbytes = entry.nbytes;
  if (entry.opcode == IBV_WR_RDMA_READ) {
    packet.op = Op::read;
    frame.put(packet);
    return;
  }
  const bool swaps = entry.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  packet.op = swaps ? Op::compare_swap : Op::fetch_add;
  const wire::Operands operands{swaps ? entry.compare : 0, swaps ? entry.swap : entry.compare};
  std::memcpy(frame.put(packet, sizeof operands), &operands, sizeof operands);
}

// One segment of a write or send.
bool Requester::emit_payload(FrameWriter& frame, SendEntry& entry, std::uint32_t& budget) noexcept {
  const std::uint32_t left = entry.nbytes - offset_;
  // Payloads behind a copier are copied together when the frame is sent, not one by one here.
  const bool inlined = entry.nbytes <= wire::kInlineBytes && !copied_;
  // A request that must be split starts a new frame, so that splits fall on round offsets.
  if (left > budget && budget < frame.most_payload()) return false;
  const std::uint32_t nbytes = std::min(left, budget);
  const bool last = nbytes == left;
  wire::Packet packet{};
  packet.op = is_send(entry.opcode) ? Op::send : Op::write;
  packet.key = entry.rkey;
  packet.address = entry.remote_address + offset_;
  packet.nbytes = nbytes;
  packet.sequence = entry.immediate;
  packet.flags =
      static_cast<std::uint8_t>((last ? 0 : wire::kMore) | (inlined ? wire::kInline : 0) |
                                (has_immediate(entry.opcode) ? wire::kImmediate : 0) |
                                (entry.solicited ? wire::kSolicited : 0));
  std::byte staged[wire::kInlineBytes];
  if (inlined && !copy_payload(entry, staged, nbytes)) {
    stop(IBV_WC_LOC_PROT_ERR);
    return false;
  }
  std::byte* extra = frame.put(packet, inlined ? nbytes : 0);
  if (inlined) {
    std::memcpy(extra, staged, nbytes);
  } else {
    frame.attach_request(next_, offset_, nbytes);
  }
  budget -= std::min(budget, nbytes);
  offset_ = last ? 0 : offset_ + nbytes;
  if (last) ++next_;
  return true;
}

bool Requester::copy_payload(const SendEntry& entry, std::byte* to, std::uint32_t nbytes) noexcept {
  if (entry.inlined) {
    std::memcpy(to, qp_.sends.inline_data(next_), nbytes);
    return true;
  }
  Pins pins;
  IoVector parts;
  const std::int64_t added =
      add_elements(qp_.device.memory, qp_.pd, {qp_.sends.sges(next_), entry.sge_count}, 0, nbytes,
                   0, pins, parts);
  if (added != nbytes) return false;
  copy_in(parts, to, nbytes);
  return true;
}

bool Requester::on_acknowledgement(std::uint32_t count) noexcept {
  const std::uint32_t most = qp_.writer.unsent_from(next_);
  if (wire::before(count, acknowledged_) || wire::before(most, count)) return corrupt();
  if (count == acknowledged_) return true;
  acknowledged_ = count;
  not_ready_tries_ = 0;
  return retire();
}

// Completes finished requests, oldest first.
bool Requester::retire() noexcept {
  SendQueue& queue = qp_.sends;
  while (queue.head() != next_) {
    const SendEntry& entry = queue.at(queue.head());
    const bool done =
        entry.awaits_response() ? entry.answered : wire::before(queue.head(), acknowledged_);
    if (!done) return true;
    if (entry.signaled) qp_.complete_send(entry, IBV_WC_SUCCESS);
    queue.pop();
  }
  if (stopped_ != IBV_WC_SUCCESS) {
    qp_.fail({.kind = Failure::Kind::request, .status = stopped_});
    return false;
  }
  return true;
}

bool Requester::on_not_ready(const wire::Packet& packet) noexcept {
  const bool outstanding =
      packet.sequence == acknowledged_ &&
      (wire::before(packet.sequence, next_) || (packet.sequence == next_ && offset_ > 0));
  if (!outstanding || waiting_ || rewinding_) return corrupt();
  const unsigned limit = qp_.attributes.rnr_retry;
  if (limit != kRetryForEver && not_ready_tries_ >= limit) {
    qp_.fail({.kind = Failure::Kind::request, .status = IBV_WC_RNR_RETRY_EXC_ERR});
    return false;
  }
  ++not_ready_tries_;
  not_ready_at_ = packet.sequence;
  waiting_ = true;
  qp_.device.timers.set(qp_, Clock::now() + timer_of(packet.detail));
  return true;
}

void Requester::on_time() noexcept {
  if (!waiting_) return;
  waiting_ = false;
  rewinding_ = true;
}

// Only between frames: the peer discards what is in flight until the restart mark.
void Requester::rewind() noexcept {
  for (std::uint32_t at = not_ready_at_; at != next_; ++at) {
    if (qp_.sends.at(at).awaits_response()) --reads_out_;
  }
  next_ = not_ready_at_;
  offset_ = 0;
  if (wire::before(next_, answering_)) answering_ = next_;
}

bool Requester::on_refused(const wire::Packet& packet) noexcept {
  const bool outstanding =
      packet.sequence == acknowledged_ &&
      (wire::before(packet.sequence, next_) || (packet.sequence == next_ && offset_ > 0));
  if (!outstanding) return corrupt();
  qp_.fail({.kind = Failure::Kind::request, .status = status_of(packet.detail)});
  return false;
}

// Whether `number` is the oldest read or atomic without its response.
bool Requester::find_awaiting(std::uint32_t number) noexcept {
  if (wire::before(answering_, qp_.sends.head())) answering_ = qp_.sends.head();
  while (answering_ != next_) {
    const SendEntry& entry = qp_.sends.at(answering_);
    if (entry.awaits_response() && !entry.answered) break;
    ++answering_;
  }
  return answering_ == number && wire::before(number, qp_.writer.unsent_from(next_));
}

bool Requester::open_response(const wire::Packet& packet, Landing& landing) noexcept {
  if (!find_awaiting(packet.sequence)) return corrupt();
  const SendEntry& entry = qp_.sends.at(answering_);
  landing.kind = Landing::Kind::elements;
  landing.access = IBV_ACCESS_LOCAL_WRITE;
  landing.elements = {qp_.sends.sges(answering_), entry.sge_count};
  landing.offset = answered_nbytes_;  // 0 for an atomic: earlier bytes belong to another request
  if (packet.op == Op::atomic_response) {
    return entry.opcode != IBV_WR_RDMA_READ && packet.nbytes == 0 ? true : corrupt();
  }
  const std::uint64_t end = std::uint64_t{answered_nbytes_} + packet.nbytes;
  const bool last = (packet.flags & wire::kMore) == 0;
  if (entry.opcode != IBV_WR_RDMA_READ || end > entry.nbytes || (last && end != entry.nbytes)) {
    return corrupt();
  }
  return true;
}

bool Requester::close_response(const wire::Packet& packet) noexcept {
  SendEntry& entry = qp_.sends.at(answering_);
  if (packet.op == Op::read_response && (packet.flags & wire::kMore) != 0) {
    answered_nbytes_ += packet.nbytes;
    return true;
  }
  answered_nbytes_ = 0;
  entry.answered = true;
  --reads_out_;
  return retire();
}

}  // namespace zerohop::softhca
