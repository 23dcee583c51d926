// The responding side of a queue pair: executes the peer's requests, in order, and records the
// responses it owes.
#pragma once

#include <array>
#include <cstdint>

#include "softhca/device.hpp"
#include "softhca/landing.hpp"
#include "softhca/wire.hpp"

namespace zerohop::softhca {

class QueuePair;
class FrameWriter;

class Responder {
 public:
  explicit Responder(QueuePair& qp) : qp_(qp) {}
  void reset() noexcept;

  // Input from the peer. All return false after recording a Failure in the queue pair.
  bool begin_frame(const wire::Prefix& prefix) noexcept;
  // Checks a request and sets the destination of its payload; Landing::Kind::discard: ignored until
  // the peer restarts. `placed`: bytes of the payload already placed through look_ahead().
  bool open(const wire::Packet& packet, std::uint32_t placed, Landing& landing) noexcept;
  // The payload is in place: completes the request.
  bool close(const wire::Packet& packet, const wire::Operands& operands) noexcept;
  // Everything executed so far is in place ...
  void settle() noexcept { settled_ = executed_; }
  bool is_unsettled() const noexcept { return settled_ != executed_ || message_nbytes_ > 0; }
  // ... or everything since the last time is not, and its first request will be refused. None of it
  // has been acknowledged.
  void retract() noexcept {
    executed_ = settled_;
    forget_message();
  }
  // Why a packet is refused if its memory was deregistered after `placed` bytes.
  wire::Refusal refusal_after(std::uint32_t placed) const noexcept;
  // The destination of a later write's payload in the frame, if it can be determined before its
  // turn.
  bool look_ahead(const wire::Packet& packet, Landing& landing) const noexcept;

  // Output to the peer.
  void emit(FrameWriter& frame) noexcept;
  bool owes_acknowledgement() const noexcept { return executed_ != acknowledged_; }
  std::uint32_t acknowledge() noexcept {  // the count that the next frame carries
    delivered_ = false;
    return acknowledged_ = executed_;
  }
  bool has_answers() const noexcept { return answers_ > 0 || not_ready_due_ || refusal_due_; }
  // Whether a receive completed since the last acknowledgement: its owner will probably answer.
  bool delivered() const noexcept { return delivered_; }
  void refuse(wire::Refusal refusal) noexcept;  // the last packet that this side sends

 private:
  struct Answer {
    std::uint64_t address;  // read: where; atomic: the old value
    std::uint32_t request;
    std::uint32_t key;
    std::uint32_t nbytes;  // not sent yet
    bool read;
  };

  bool fail(wire::Refusal refusal) noexcept;
  bool corrupt() noexcept;
  void forget_message() noexcept;
  bool continues(const wire::Packet& packet) const noexcept;
  bool open_send(const wire::Packet& packet, Landing& landing) noexcept;
  bool open_write(const wire::Packet& packet, std::uint32_t placed, Landing& landing) noexcept;
  bool open_query(const wire::Packet& packet) noexcept;
  void write_landing(const wire::Packet& packet, Landing& landing) const noexcept;
  bool refuse_receive(ibv_wc_status status, wire::Refusal refusal) noexcept;
  bool finds_no_receive() noexcept;
  void not_ready(Landing& landing) noexcept;
  bool close_atomic(const wire::Packet& packet, const wire::Operands& operands) noexcept;
  bool push_answer(const Answer& answer) noexcept;
  bool emit_read(FrameWriter& frame, Answer& answer, std::uint32_t& budget) noexcept;

  QueuePair& qp_;
  std::uint32_t executed_ = 0;        // requests executed: the number of the next one
  std::uint32_t settled_ = 0;         // of these, certainly in place
  std::uint32_t acknowledged_ = 0;    // of these, acknowledged to the peer
  std::uint32_t message_nbytes_ = 0;  // of the request being received, in earlier packets
  wire::Op message_op_{};    // ... their operation; none: a message begins with the next packet
  bool discarding_ = false;  // after not_ready, until the peer restarts
  bool delivered_ = false;
  bool not_ready_due_ = false;
  bool refusal_due_ = false;
  wire::Refusal refusal_{};
  std::uint32_t first_answer_ = 0;  // ring index
  std::uint32_t answers_ = 0;
  std::array<Answer, limits::kReadsAndAtomics> answer_ring_;
};

}  // namespace zerohop::softhca
