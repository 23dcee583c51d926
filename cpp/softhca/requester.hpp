// The requesting side of a queue pair: turns posted work into packets, in order, and completes it
// in order once the peer has acknowledged or answered it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softhca/landing.hpp"
#include "softhca/send_queue.hpp"
#include "softhca/timers.hpp"
#include "softhca/wire.hpp"

namespace zerohop::softhca {

class QueuePair;
class FrameWriter;

class Requester {
 public:
  explicit Requester(QueuePair& qp) : qp_(qp) {}

  std::uint32_t next() const noexcept { return next_; }
  bool has_work() const noexcept;  // posted and not in a frame yet
  // Whether posted requests may wait for more: small ones behind many in flight. The
  // acknowledgement due for those, or the next poll, sends them in one frame.
  bool gathers() const noexcept;
  void emit(FrameWriter& frame) noexcept;  // fills the frame with packets that may be sent now
  void reset() noexcept;

  // Input from the peer. All return false after recording a Failure in the queue pair.
  bool on_acknowledgement(
      std::uint32_t count) noexcept;  // requests numbered below `count` are done
  bool on_not_ready(const wire::Packet& packet) noexcept;
  bool on_refused(const wire::Packet& packet) noexcept;
  bool open_response(const wire::Packet& packet, Landing& landing) noexcept;
  bool close_response(const wire::Packet& packet) noexcept;

  void on_time() noexcept;  // the RNR wait is over

 private:
  bool may_start(const SendEntry& entry) noexcept;
  bool emit_one(FrameWriter& frame, std::uint32_t& budget) noexcept;
  bool emit_payload(FrameWriter& frame, SendEntry& entry, std::uint32_t& budget) noexcept;
  bool copy_payload(const SendEntry& entry, std::byte* to, std::uint32_t nbytes) noexcept;
  void emit_query(FrameWriter& frame, const SendEntry& entry) noexcept;
  void stop(ibv_wc_status status) noexcept;
  void rewind() noexcept;
  bool retire() noexcept;
  bool find_awaiting(std::uint32_t number) noexcept;
  bool corrupt() noexcept;

  QueuePair& qp_;
  std::uint32_t next_ = 0;    // the request of the next packet
  std::uint32_t offset_ = 0;  // bytes of it already in frames
  std::uint32_t acknowledged_ =
      0;                         // requests below have been carried out, reads maybe not answered
  std::uint32_t answering_ = 0;  // every earlier read and atomic has its response
  std::uint32_t answered_nbytes_ = 0;       // of the read at answering_
  std::uint32_t reads_out_ = 0;             // reads and atomics sent and not answered
  std::uint32_t not_ready_at_ = 0;          // the request that found no receive
  unsigned not_ready_tries_ = 0;            // consecutive tries
  bool waiting_ = false;                    // for the RNR timer
  bool copied_ = false;                     // the CPU cannot access all payload of next_
  bool rewinding_ = false;                  // to not_ready_at_ with the next frame
  ibv_wc_status stopped_ = IBV_WC_SUCCESS;  // why request next_ cannot start: a local error
};

}  // namespace zerohop::softhca
