// The requesting side of a queue pair: turns posted work into packets, in order, and completes it
// when the peer has acknowledged or answered it, in order.
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
  // Whether what is posted may wait for more: small requests behind many others on their way. The
  // acknowledgement that is due for those, or the next poll, sends them in one frame.
  bool gathers() const noexcept;
  void emit(FrameWriter& frame) noexcept;  // fills the frame with the packets that may leave now
  void reset() noexcept;

  // What arrives from the peer. All return false after recording a Failure in the queue pair.
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
  std::uint32_t next_ = 0;    // the request that the next packet belongs to
  std::uint32_t offset_ = 0;  // bytes of it that are in frames already
  std::uint32_t acknowledged_ =
      0;                         // requests below have been carried out, reads maybe not answered
  std::uint32_t answering_ = 0;  // no read or atomic below is still without its response
  std::uint32_t answered_nbytes_ = 0;       // of the read at answering_
  std::uint32_t reads_out_ = 0;             // reads and atomics sent and not answered
  std::uint32_t not_ready_at_ = 0;          // the request that found no receive
  unsigned not_ready_tries_ = 0;            // how often in a row
  bool waiting_ = false;                    // for the RNR timer
  bool copied_ = false;                     // the CPU cannot touch all payload of next_
  bool rewinding_ = false;                  // back to not_ready_at_ with the next frame
  ibv_wc_status stopped_ = IBV_WC_SUCCESS;  // why the request next_ cannot start: a local error
};

}  // namespace zerohop::softhca
