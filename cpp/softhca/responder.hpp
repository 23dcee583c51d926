// The responding side of a queue pair: carries out the peer's requests, in order, and remembers
// what it has to answer.
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

  // What arrives from the peer. All return false after recording a Failure in the queue pair.
  bool begin_frame(const wire::Prefix& prefix) noexcept;
  // Decides on a request and says where its payload goes; Landing::Kind::discard: ignored until the
  // peer starts again. `placed`: bytes of the payload that look_ahead() has brought there already.
  bool open(const wire::Packet& packet, std::uint32_t placed, Landing& landing) noexcept;
  // The payload is in place: completes the request.
  bool close(const wire::Packet& packet, const wire::Operands& operands) noexcept;
  // What has been carried out so far is in place ...
  void settle() noexcept { settled_ = executed_; }
  bool is_unsettled() const noexcept { return settled_ != executed_ || message_nbytes_ > 0; }
  // ... or what came since the last time is not, and the first of it is to be refused. The peer has
  // heard of none of it.
  void retract() noexcept {
    executed_ = settled_;
    forget_message();
  }
  // Why the packet is refused whose memory went away after `placed` bytes of it.
  wire::Refusal refusal_after(std::uint32_t placed) const noexcept;
  // Where the payload of a later write of the frame will go, if that can be said before its turn.
  bool look_ahead(const wire::Packet& packet, Landing& landing) const noexcept;

  // What leaves to the peer.
  void emit(FrameWriter& frame) noexcept;
  bool owes_acknowledgement() const noexcept { return executed_ != acknowledged_; }
  std::uint32_t acknowledge() noexcept {  // the count that the next frame carries
    delivered_ = false;
    return acknowledged_ = executed_;
  }
  bool has_answers() const noexcept { return answers_ > 0 || not_ready_due_ || refusal_due_; }
  // Whether a receive completed since the last acknowledgement: its owner will likely answer.
  bool delivered() const noexcept { return delivered_; }
  void refuse(wire::Refusal refusal) noexcept;  // the last thing that this side says

 private:
  struct Answer {
    std::uint64_t address;  // read: where; atomic: the old value
    std::uint32_t request;
    std::uint32_t key;
    std::uint32_t nbytes;  // left to send
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
  std::uint32_t executed_ = 0;        // requests carried out: the number of the next one
  std::uint32_t settled_ = 0;         // of them, in place for sure
  std::uint32_t acknowledged_ = 0;    // of them, told to the peer
  std::uint32_t message_nbytes_ = 0;  // of the request being received, in earlier packets
  wire::Op message_op_{};             // ... what those are; none: it begins with the next packet
  bool discarding_ = false;           // after not_ready, until the peer starts again
  bool delivered_ = false;
  bool not_ready_due_ = false;
  bool refusal_due_ = false;
  wire::Refusal refusal_{};
  std::uint32_t first_answer_ = 0;  // ring index
  std::uint32_t answers_ = 0;
  std::array<Answer, limits::kReadsAndAtomics> answer_ring_;
};

}  // namespace zerohop::softhca
