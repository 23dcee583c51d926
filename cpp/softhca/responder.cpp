#include "softhca/responder.hpp"

#include <algorithm>
#include <atomic>

#include "softhca/context.hpp"
#include "softhca/copied_atomic.hpp"
#include "softhca/frame_writer.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

using wire::Op;

bool has(const wire::Packet& packet, wire::PacketFlag flag) { return (packet.flags & flag) != 0; }

bool is_atomic(Op op) { return op == Op::compare_swap || op == Op::fetch_add; }

// The rights that the region and the queue pair must grant for this request.
int access_for(Op op) {
  if (op == Op::write) return IBV_ACCESS_REMOTE_WRITE;
  return op == Op::read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_ATOMIC;
}

}  // namespace

void Responder::reset() noexcept {
  executed_ = settled_ = acknowledged_ = 0;
  forget_message();
  discarding_ = delivered_ = not_ready_due_ = refusal_due_ = false;
  first_answer_ = answers_ = 0;
}

bool Responder::fail(wire::Refusal refusal) noexcept {
  qp_.fail({.kind = Failure::Kind::responder, .refusal = refusal});
  return false;
}

bool Responder::corrupt() noexcept {
  qp_.fail({.kind = Failure::Kind::corrupt});
  return false;
}

bool Responder::begin_frame(const wire::Prefix& prefix) noexcept {
  const bool restarts = (prefix.flags & wire::kRestart) != 0;
  if (restarts != discarding_) return discarding_ ? true : corrupt();
  if (restarts) forget_message();
  // A frame without requests also carries the number of the next one.
  if (prefix.first_request != executed_) return corrupt();
  discarding_ = false;
  return true;
}

bool Responder::open(const wire::Packet& packet, std::uint32_t placed, Landing& landing) noexcept {
  landing.kind = Landing::Kind::discard;
  if (discarding_) return true;
  if (!continues(packet)) return fail(wire::Refusal::invalid_request);
  switch (packet.op) {
    case Op::send: return open_send(packet, landing);
    case Op::write: return open_write(packet, placed, landing);
    default: landing.kind = Landing::Kind::none; return open_query(packet);
  }
}

void Responder::forget_message() noexcept {
  message_nbytes_ = 0;
  message_op_ = {};
}

// All packets of a message have one operation, and a message has a maximum size (IBA 9.7.4.1.2,
// 9.7.4.1.6).
bool Responder::continues(const wire::Packet& packet) const noexcept {
  const std::uint64_t nbytes = std::uint64_t{message_nbytes_} + packet.nbytes;
  return message_op_ == Op{} || (packet.op == message_op_ && nbytes <= wire::kMaxMessage);
}

void Responder::not_ready(Landing& landing) noexcept {
  discarding_ = not_ready_due_ = true;
  forget_message();
  landing.kind = Landing::Kind::discard;
}

bool Responder::refuse_receive(ibv_wc_status status, wire::Refusal refusal) noexcept {
  qp_.complete_receive(status);
  return fail(refusal);
}

// A fault: reports none although there is one.
bool Responder::finds_no_receive() noexcept {
  return qp_.faulty && qp_.faulty->finds_no_receive(executed_);
}

bool Responder::open_send(const wire::Packet& packet, Landing& landing) noexcept {
  if (!qp_.taken.there && (finds_no_receive() || !qp_.take_receive())) {
    not_ready(landing);
    return true;
  }
  if (std::uint64_t{message_nbytes_} + packet.nbytes > qp_.taken.entry.capacity) {
    return refuse_receive(IBV_WC_LOC_LEN_ERR, wire::Refusal::invalid_request);
  }
  landing.kind = Landing::Kind::elements;
  landing.access = IBV_ACCESS_LOCAL_WRITE;
  landing.elements = qp_.taken.elements();
  landing.offset = message_nbytes_;
  if (are_allowed(qp_.device.memory, qp_.pd, landing.elements, landing.offset, packet.nbytes,
                  landing.access) == Allowed::no) {
    return refuse_receive(IBV_WC_LOC_PROT_ERR, wire::Refusal::operation);
  }
  return true;
}

void Responder::write_landing(const wire::Packet& packet, Landing& landing) const noexcept {
  landing.kind = Landing::Kind::region;
  landing.access = IBV_ACCESS_REMOTE_WRITE;
  landing.key = packet.key;
  landing.address = packet.address;
}

bool Responder::open_write(const wire::Packet& packet, std::uint32_t placed,
                           Landing& landing) noexcept {
  if (has(packet, wire::kImmediate) && !has(packet, wire::kMore) &&
      (finds_no_receive() || !qp_.take_receive())) {
    not_ready(landing);
    return true;
  }
  write_landing(packet, landing);
  if (packet.nbytes == 0) return true;  // the key is not checked for zero bytes (IBA 9.7.4.1.5)
  const bool allowed = (qp_.attributes.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0 &&
                       qp_.device.memory.allows(packet.key, qp_.pd, packet.address, packet.nbytes,
                                                IBV_ACCESS_REMOTE_WRITE);
  return allowed ? true : fail(refusal_after(placed));
}

// An adapter checks a packet of the path MTU once and then places all of it. Here its bytes may
// arrive in parts, and the memory may be closed between two of them. A requester may take an access
// error on a one-packet message to mean that nothing was written, so it must not get one then.
wire::Refusal Responder::refusal_after(std::uint32_t placed) const noexcept {
  const std::uint32_t mtu = 128u << qp_.attributes.path_mtu;  // ibv_mtu: IBV_MTU_256 is 1
  const std::uint64_t done = std::uint64_t{message_nbytes_} + placed;
  return done > 0 && done < mtu ? wire::Refusal::operation : wire::Refusal::access;
}

bool Responder::look_ahead(const wire::Packet& packet, Landing& landing) const noexcept {
  if (discarding_ || packet.op != Op::write ||
      (qp_.attributes.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0) {
    return false;
  }
  write_landing(packet, landing);
  return true;
}

// A read or an atomic.
bool Responder::open_query(const wire::Packet& packet) noexcept {
  const bool atomic = is_atomic(packet.op);
  const std::uint32_t nbytes = atomic ? sizeof(std::uint64_t) : packet.nbytes;
  if (answers_ >= qp_.attributes.max_dest_rd_atomic || nbytes > wire::kMaxMessage ||
      (atomic && packet.address % alignof(std::uint64_t) != 0)) {
    return fail(wire::Refusal::invalid_request);
  }
  const int access = access_for(packet.op);
  const bool allowed =
      nbytes == 0 || ((static_cast<int>(qp_.attributes.qp_access_flags) & access) != 0 &&
                      qp_.device.memory.allows(packet.key, qp_.pd, packet.address, nbytes, access));
  return allowed ? true : fail(wire::Refusal::access);
}

bool Responder::close(const wire::Packet& packet, const wire::Operands& operands) noexcept {
  if (is_atomic(packet.op)) return close_atomic(packet, operands);
  if (packet.op == Op::read) {
    return push_answer({packet.address, executed_, packet.key, packet.nbytes, true});
  }
  message_nbytes_ += packet.nbytes;
  message_op_ = packet.op;
  if (has(packet, wire::kMore)) return true;
  if (packet.op == Op::send || has(packet, wire::kImmediate)) {
    qp_.complete_receive(packet, message_nbytes_);
    delivered_ = true;
  }
  forget_message();
  ++executed_;
  return true;
}

bool Responder::close_atomic(const wire::Packet& packet, const wire::Operands& operands) noexcept {
  Pins pins;
  const Place place = qp_.device.memory.pin(packet.key, qp_.pd, packet.address,
                                            sizeof(std::uint64_t), IBV_ACCESS_REMOTE_ATOMIC, pins);
  if (!place) return fail(wire::Refusal::access);
  // A zero-based or dma-buf region may place an aligned address at unaligned bytes.
  if (reinterpret_cast<std::uintptr_t>(place.at) % alignof(std::uint64_t) != 0) {
    return fail(wire::Refusal::invalid_request);
  }
  std::uint64_t old = operands.compare;
  if (place.copier != nullptr) {
    const int error =
        copied_atomic(qp_.device.copied_atomics, place, packet.op == Op::fetch_add, operands, old);
    if (error != 0) {
      qp_.fail({.kind = Failure::Kind::responder,
                .refusal = wire::Refusal::operation,
                .copy_error = error});
      return false;
    }
    return push_answer({old, executed_, 0, 0, false});
  }
  // The CPU's own atomics: atomic among all queue pairs of the device, and with the program.
  std::atomic_ref<std::uint64_t> target(*reinterpret_cast<std::uint64_t*>(place.at));
  if (packet.op == Op::fetch_add) {
    old = target.fetch_add(operands.operand, std::memory_order_acq_rel);
  } else {
    target.compare_exchange_strong(old, operands.operand, std::memory_order_acq_rel);
  }
  return push_answer({old, executed_, 0, 0, false});
}

bool Responder::push_answer(const Answer& answer) noexcept {
  answer_ring_[(first_answer_ + answers_) % answer_ring_.size()] = answer;
  ++answers_;
  ++executed_;
  return true;
}

void Responder::refuse(wire::Refusal refusal) noexcept {
  refusal_ = refusal;
  refusal_due_ = true;
}

void Responder::emit(FrameWriter& frame) noexcept {
  std::uint32_t budget = frame.most_payload();
  while (answers_ > 0 && budget > 0 && frame.has_room()) {
    Answer& answer = answer_ring_[first_answer_];
    if (!emit_read(frame, answer, budget)) return;
    first_answer_ = (first_answer_ + 1) % answer_ring_.size();
    --answers_;
  }
  if (answers_ > 0 || !frame.has_room()) return;
  if (not_ready_due_) {
    frame.put({Op::not_ready, 0, qp_.attributes.min_rnr_timer, executed_, 0, 0, 0});
    not_ready_due_ = false;
  }
  if (refusal_due_ && frame.has_room()) {
    frame.put({Op::refused, 0, static_cast<std::uint16_t>(refusal_), executed_, 0, 0, 0});
    refusal_due_ = false;
  }
}

// Sends the next packet of a response. Returns whether it was the last one.
bool Responder::emit_read(FrameWriter& frame, Answer& answer, std::uint32_t& budget) noexcept {
  if (!answer.read) {
    frame.put({Op::atomic_response, 0, 0, answer.request, 0, 0, answer.address});
    return true;
  }
  const std::uint32_t nbytes = std::min(answer.nbytes, budget);
  const bool last = nbytes == answer.nbytes;
  frame.put({Op::read_response, last ? std::uint8_t{0} : std::uint8_t{wire::kMore}, 0,
             answer.request, 0, nbytes, 0});
  frame.attach_memory(answer.key, answer.address, nbytes);
  budget -= nbytes;
  answer.address += nbytes;
  answer.nbytes -= nbytes;
  return last;
}

}  // namespace zerohop::softhca
