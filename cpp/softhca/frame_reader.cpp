#include "softhca/frame_reader.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "softhca/checked_frame.hpp"
#include "softhca/context.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

using wire::Op;

constexpr int kReceivesAtOnce = 16;  // system calls before other connections get their turn

bool has_payload(Op op) { return op == Op::send || op == Op::write || op == Op::read_response; }
bool has_operands(Op op) { return op == Op::compare_swap || op == Op::fetch_add; }
bool is_response(Op op) { return op == Op::read_response || op == Op::atomic_response; }

bool is_known(const wire::Packet& packet) {
  const auto op = static_cast<std::uint8_t>(packet.op);
  const bool inlined = (packet.flags & wire::kInline) != 0;
  if (op < static_cast<std::uint8_t>(Op::send) || op > static_cast<std::uint8_t>(Op::refused)) {
    return false;
  }
  if (inlined && (!has_payload(packet.op) || packet.nbytes > wire::kInlineBytes)) return false;
  return !has_payload(packet.op) || packet.nbytes <= wire::kSegmentBytes;
}

bool is_inlined(const wire::Packet& packet) { return (packet.flags & wire::kInline) != 0; }

// Bytes behind the control section.
std::uint32_t outside(const wire::Packet& packet) {
  return has_payload(packet.op) && !is_inlined(packet) ? packet.nbytes : 0;
}

}  // namespace

void FrameReader::reset() noexcept {
  begin_ = end_ = 0;
  in_frame_ = in_packet_ = false;
  packets_left_ = payload_done_ = ahead_ = next_checked_ = 0;
  small_.give_back();
}

bool FrameReader::take_buffer(QueuePair& qp) noexcept {
  if (large_) return true;
  if (!small_.take()) {
    qp.fail({.kind = Failure::Kind::lost});
    return false;
  }
  buffer_ = small_->bytes;
  return true;
}

void FrameReader::give_buffer_back() noexcept {
  if (begin_ != end_ || in_frame_) return;
  begin_ = end_ = 0;
  small_.give_back();
}

FrameReader::Step FrameReader::corrupt(QueuePair& qp) noexcept {
  qp.fail({.kind = Failure::Kind::corrupt});
  return Step::failed;
}

// The packet's memory from byte `placed` on is not registered (any more), or a copy to it failed.
FrameReader::Step FrameReader::withdrawn(QueuePair& qp, std::uint32_t placed) noexcept {
  if (!settle(qp)) return Step::failed;
  qp.fail({.kind = response_ ? Failure::Kind::request : Failure::Kind::responder,
           .status = IBV_WC_LOC_PROT_ERR,
           .refusal = qp.responder.refusal_after(placed)});
  return Step::failed;
}

FrameReader::Step FrameReader::lost(QueuePair& qp, ssize_t result) noexcept {
  if (result < 0 && errno == EAGAIN) return Step::starved;
  if (result < 0 && errno == EINTR) return Step::progress;
  if (result < 0 && errno == EFAULT) {  // the user unmapped memory that is still registered
    qp.fail({.kind = Failure::Kind::withdrawn});
  } else {
    qp.fail({.kind = Failure::Kind::lost});
  }
  return Step::failed;
}

// Completes the copies to memory behind a Bounce. False if one failed: then nothing received since
// the last call counts.
bool FrameReader::settle(QueuePair& qp) noexcept {
  if (const int error = qp.bounce.settle(); error != 0) {
    const bool ours = response_ && !qp.responder.is_unsettled();
    if (!ours) qp.responder.retract();
    qp.fail({.kind = ours ? Failure::Kind::request : Failure::Kind::responder,
             .status = IBV_WC_GENERAL_ERR,
             .refusal = wire::Refusal::operation,
             .copy_error = error});
    return false;
  }
  qp.responder.settle();
  return true;
}

bool FrameReader::read(QueuePair& qp) noexcept {
  const bool received = take_buffer(qp) && read_some(qp);
  settle(qp);
  give_buffer_back();
  return received;
}

bool FrameReader::read_some(QueuePair& qp) noexcept {
  for (int i = 0; i < kReceivesAtOnce; ++i) {
    if (receive(qp) != Step::progress) return i > 0;
    // Parse before returning: with the socket empty, nothing would call this function again.
    if (parse(qp) == Step::failed || short_read_) return true;
  }
  return true;
}

void FrameReader::read_rest(QueuePair& qp) noexcept {
  if (!take_buffer(qp)) return;
  while (receive(qp) == Step::progress && parse(qp) == Step::starved) {
  }
  settle(qp);
  give_buffer_back();
}

// Consumes what has been received, packet by packet. Never returns progress.
FrameReader::Step FrameReader::parse(QueuePair& qp) noexcept {
  for (;;) {
    Step step = in_frame_ ? next_packet(qp) : begin_frame(qp);
    if (step != Step::progress) return step;
  }
}

FrameReader::Step FrameReader::begin_frame(QueuePair& qp) noexcept {
  wire::Prefix prefix;
  const std::uint32_t received = end_ - begin_;
  if (received < sizeof prefix) return await();
  std::memcpy(&prefix, &buffer_[begin_], sizeof prefix);
  if (prefix.control_bytes < sizeof prefix || prefix.control_bytes > wire::kMaxControl ||
      prefix.packets > wire::kMaxPackets || prefix.flags > (wire::kRestart | wire::kChecked) ||
      prefix.zero[0] != 0 || prefix.zero[1] != 0 || prefix.zero[2] != 0) {
    return corrupt(qp);
  }
  if ((prefix.flags & wire::kChecked) != 0) {
    return prefix.control_bytes < kCheckEnd ? corrupt(qp) : begin_checked(qp);
  }
  return received < prefix.control_bytes ? await() : take_frame(qp, sizeof prefix);
}

// A checked frame takes effect only once all of it has arrived and passed the check.
FrameReader::Step FrameReader::begin_checked(QueuePair& qp) noexcept {
  const std::span<std::byte> received = buffer_.subspan(begin_, end_ - begin_);
  const std::size_t nbytes = checked_nbytes(received);
  if (nbytes == 0) return corrupt(qp);
  if (received.size() < nbytes) {
    if (!make_room()) return corrupt(qp);
    return await();
  }
  switch (inspect_frame(received.first(nbytes), next_checked_)) {
    case Finding::next: ++next_checked_; return take_frame(qp, kCheckEnd);
    case Finding::damaged: qp.device.faults.counts->add(Fault::corrupt_found); break;
    case Finding::repeated: qp.device.faults.counts->add(Fault::duplicate_found); break;
    case Finding::gap: return corrupt(qp);
  }
  begin_ += static_cast<std::uint32_t>(nbytes);
  return Step::progress;
}

// The control section has been received; its packets begin at byte `packets_at` of it.
FrameReader::Step FrameReader::take_frame(QueuePair& qp, std::uint32_t packets_at) noexcept {
  wire::Prefix prefix;
  std::memcpy(&prefix, &buffer_[begin_], sizeof prefix);
  if (!qp.requester.on_acknowledgement(prefix.acknowledged) || !qp.responder.begin_frame(prefix)) {
    return Step::failed;
  }
  in_frame_ = true;
  packet_at_ = begin_ + packets_at;
  control_end_ = begin_ + prefix.control_bytes;
  begin_ = control_end_;
  packets_left_ = prefix.packets;
  return Step::progress;
}

// The rest of the frame has not arrived: makes room for it.
FrameReader::Step FrameReader::await() noexcept {
  const std::uint32_t received = end_ - begin_;
  std::memmove(buffer_.data(), buffer_.data() + begin_, received);
  begin_ = 0;
  end_ = received;
  return Step::starved;
}

// For a whole checked frame and the beginning of the next. False: out of memory.
bool FrameReader::make_room() noexcept {
  if (large_) return true;
  large_.reset(new (std::nothrow) std::byte[kLarge]);
  if (!large_) return false;
  std::memcpy(large_.get(), buffer_.data(), end_);
  buffer_ = {large_.get(), kLarge};
  small_.give_back();
  return true;
}

FrameReader::Step FrameReader::next_packet(QueuePair& qp) noexcept {
  if (in_packet_) return take_payload(qp);
  if (packets_left_ > 0) return open_packet(qp);
  if (packet_at_ != control_end_ || ahead_ != 0) return corrupt(qp);
  in_frame_ = false;
  return Step::progress;
}

// Reads the packet at `at` and moves `at` past it and its operands or inline payload.
bool FrameReader::decode(std::uint32_t& at, wire::Packet& packet) const noexcept {
  if (control_end_ - at < sizeof packet) return false;
  std::memcpy(&packet, &buffer_[at], sizeof packet);
  if (!is_known(packet)) return false;
  at += sizeof packet;
  std::size_t extra = is_inlined(packet) ? wire::padded(packet.nbytes) : 0;
  if (has_operands(packet.op)) extra = sizeof(wire::Operands);
  if (control_end_ - at < extra) return false;
  at += static_cast<std::uint32_t>(extra);
  return true;
}

FrameReader::Step FrameReader::open_packet(QueuePair& qp) noexcept {
  const std::uint32_t extra_at = packet_at_ + sizeof packet_;
  if (!decode(packet_at_, packet_)) return corrupt(qp);
  --packets_left_;
  if (packet_.op == Op::not_ready || packet_.op == Op::refused) {
    const bool going_on = packet_.op == Op::refused ? qp.requester.on_refused(packet_)
                                                    : qp.requester.on_not_ready(packet_);
    return going_on ? Step::progress : Step::failed;
  }
  if (has_operands(packet_.op)) std::memcpy(&operands_, &buffer_[extra_at], sizeof operands_);
  response_ = is_response(packet_.op);
  payload_done_ = std::min(ahead_, outside(packet_));
  ahead_ -= payload_done_;
  const bool opened = response_ ? qp.requester.open_response(packet_, landing_)
                                : qp.responder.open(packet_, payload_done_, landing_);
  if (!opened) return Step::failed;
  in_packet_ = true;
  return is_inlined(packet_) ? store(qp, &buffer_[extra_at], packet_.nbytes) : Step::progress;
}

// Moves payload from the look-ahead buffer to its place.
FrameReader::Step FrameReader::take_payload(QueuePair& qp) noexcept {
  const std::uint32_t left = has_payload(packet_.op) ? packet_.nbytes - payload_done_ : 0;
  if (left == 0) return close_packet(qp);
  const std::uint32_t nbytes = std::min(left, end_ - begin_);
  if (nbytes == 0) return Step::starved;
  const Step step = store(qp, &buffer_[begin_], nbytes);
  begin_ += nbytes;
  return step;
}

FrameReader::Step FrameReader::store(QueuePair& qp, const std::byte* from,
                                     std::uint32_t nbytes) noexcept {
  std::uint32_t stored = 0;
  while (landing_.kind != Landing::Kind::discard && stored < nbytes) {
    Pins pins;
    IoVector parts(qp.bounce, Bounce::Direction::in);
    const std::int64_t added =
        landing_.add(qp.device.memory, qp.pd, payload_done_ + stored, nbytes - stored, pins, parts);
    if (added <= 0) return withdrawn(qp, payload_done_ + stored);
    // The program may poll a word in memory: earlier data, anywhere, must be in place first.
    const bool is_word = nbytes == sizeof(std::uint32_t) || nbytes == sizeof(std::uint64_t);
    if (is_word && parts.on_host() && !qp.bounce.idle() && !settle(qp)) return Step::failed;
    copy_out(parts, from + stored, static_cast<std::size_t>(added));
    qp.bounce.land(static_cast<std::size_t>(added), pins);
    stored += static_cast<std::uint32_t>(added);
  }
  payload_done_ += nbytes;
  return Step::progress;
}

FrameReader::Step FrameReader::close_packet(QueuePair& qp) noexcept {
  in_packet_ = false;
  if (landing_.kind == Landing::Kind::discard) return Step::progress;
  if (packet_.op == Op::atomic_response) {  // its payload is in the address field
    const auto* old = reinterpret_cast<const std::byte*>(&packet_.address);
    if (store(qp, old, sizeof packet_.address) != Step::progress) return Step::failed;
  }
  // The peer hears of a plain write only at the end of read(), so the copies of several can run
  // together. Everything else is visible at once.
  const bool reported_later = packet_.op == Op::write && (packet_.flags & wire::kImmediate) == 0;
  if (!reported_later && !settle(qp)) return Step::failed;
  const bool closed =
      response_ ? qp.requester.close_response(packet_) : qp.responder.close(packet_, operands_);
  return closed ? Step::progress : Step::failed;
}

// One system call: into the known landing places, and into the look-ahead buffer.
FrameReader::Step FrameReader::receive(QueuePair& qp) noexcept {
  if (in_packet_ && landing_.kind == Landing::Kind::discard) return discard(qp);
  Pins pins;
  IoVector parts(qp.bounce, Bounce::Direction::in);
  std::uint32_t ahead = 0;
  if (!gather(qp, pins, parts, ahead)) return Step::failed;
  const ssize_t nbytes = receive_parts(qp.connection.fd(), parts);
  if (nbytes <= 0) return lost(qp, nbytes);
  qp.bounce.land(static_cast<std::size_t>(nbytes), pins);
  short_read_ = static_cast<std::size_t>(nbytes) < parts.nbytes();
  accept_bytes(static_cast<std::size_t>(nbytes), ahead);
  return Step::progress;
}

// Called only while the buffer holds no unconsumed payload: the missing payload has not arrived.
bool FrameReader::gather(QueuePair& qp, Pins& pins, IoVector& out, std::uint32_t& ahead) noexcept {
  if (!in_packet_) {
    out.add(buffer_.data() + end_, buffer_.size() - end_);
    return true;
  }
  begin_ = end_ = control_end_;
  const std::uint32_t left = packet_.nbytes - payload_done_;
  const std::int64_t added = landing_.add(qp.device.memory, qp.pd, payload_done_, left, pins, out);
  if (added <= 0) {
    withdrawn(qp, payload_done_);
    return false;
  }
  const bool all = added == left && gather_ahead(qp, pins, out, ahead);
  if (all && !out.full()) out.add(buffer_.data() + end_, buffer_.size() - end_);
  return true;
}

// Adds the places of the following packets. Returns whether they cover the whole rest of the frame.
bool FrameReader::gather_ahead(QueuePair& qp, Pins& pins, IoVector& out,
                               std::uint32_t& ahead) noexcept {
  std::uint32_t at = packet_at_;
  bool may_be_refused = false;
  for (std::uint32_t i = 0; i < packets_left_; ++i) {
    wire::Packet packet;
    if (!decode(at, packet)) return false;  // reported in its turn
    const std::uint32_t nbytes = outside(packet);
    if (nbytes == 0) {
      // A request without payload here may be refused in its turn; then nothing behind it may have
      // been placed.
      if (packet.op <= wire::Op::fetch_add) may_be_refused = true;
      continue;
    }
    Landing landing;
    if (may_be_refused || out.full() || !qp.responder.look_ahead(packet, landing)) return false;
    const std::int64_t added = landing.add(qp.device.memory, qp.pd, 0, nbytes, pins, out);
    if (added > 0) ahead += static_cast<std::uint32_t>(added);
    if (added < nbytes) return false;
  }
  return true;
}

void FrameReader::accept_bytes(std::size_t nbytes, std::uint32_t ahead) noexcept {
  if (in_packet_) {
    const std::size_t own = std::min<std::size_t>(nbytes, packet_.nbytes - payload_done_);
    payload_done_ += static_cast<std::uint32_t>(own);
    nbytes -= own;
    const std::size_t others = std::min<std::size_t>(nbytes, ahead);
    ahead_ = static_cast<std::uint32_t>(others);
    nbytes -= others;
  }
  end_ += static_cast<std::uint32_t>(nbytes);
}

FrameReader::Step FrameReader::discard(QueuePair& qp) noexcept {
  begin_ = end_ = control_end_;
  const std::size_t left = packet_.nbytes - payload_done_;
  // With MSG_TRUNC the kernel drops the bytes of a TCP stream without copying them (man 7 tcp).
  const ssize_t nbytes = ::recv(qp.connection.fd(), nullptr, left, MSG_TRUNC | MSG_DONTWAIT);
  short_read_ = nbytes > 0 && static_cast<std::size_t>(nbytes) < left;
  if (nbytes <= 0) return lost(qp, nbytes);
  payload_done_ += static_cast<std::uint32_t>(nbytes);
  return Step::progress;
}

}  // namespace zerohop::softhca
