// Builds frames (wire.hpp) from the packets of requester and responder, and sends them with as few
// system calls as possible, directly from the user's memory; from memory that the CPU cannot
// access, through a Bounce.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "softhca/borrowed.hpp"
#include "softhca/scatter.hpp"
#include "softhca/wire.hpp"

namespace zerohop::softhca {

class QueuePair;

class FrameWriter {
 public:
  enum class Io { done, blocked, more, held, failed };

  // Sends until nothing is due (done), the socket is full (blocked), others should have a turn
  // (more) or a fault holds a frame back (held). `acknowledge`: send a frame even for an
  // acknowledgement alone.
  Io flush(QueuePair& qp, bool acknowledge) noexcept;

  bool idle() const noexcept { return control_nbytes_ == 0; }
  void reset() noexcept {
    control_nbytes_ = 0;
    frame_.give_back();
  }

  // The first request of which not every byte has been passed to the kernel; `next` is the first
  // one that is in no frame yet.
  std::uint32_t unsent_from(std::uint32_t next) const noexcept;

  // For requester and responder, while they fill a frame.
  bool has_room(std::size_t extra_nbytes = 0) const noexcept {
    return packets_ < (faulty_ ? 1 : wire::kMaxPackets) &&
           control_nbytes_ + sizeof(wire::Packet) + wire::padded(extra_nbytes) <= wire::kMaxControl;
  }
  // Appends a packet and room for extra_nbytes behind it (operands or inline payload).
  std::byte* put(const wire::Packet& packet, std::size_t extra_nbytes = 0) noexcept;
  // Payload that follows the control section: from our request `number`, from `offset` on ...
  void attach_request(std::uint32_t number, std::uint32_t offset, std::uint32_t nbytes) noexcept;
  // ... or from registered memory that the peer reads.
  void attach_memory(std::uint32_t key, std::uint64_t address, std::uint32_t nbytes) noexcept;
  void start_requests(std::uint32_t first, bool restart) noexcept;
  // Bytes of the frame's requests, and of its responses.
  std::uint32_t most_payload() const noexcept {
    return faulty_ ? wire::kCheckedPayload : wire::kSegmentBytes;
  }

 private:
  struct Segment {
    std::uint64_t place;  // offset in the message, or address
    std::uint32_t name;   // request number, or key
    std::uint32_t nbytes;
    bool request;
  };

  bool build(QueuePair& qp, bool acknowledge) noexcept;
  Io send(QueuePair& qp) noexcept;
  Io send_faulty(QueuePair& qp) noexcept;
  ssize_t send_vector(QueuePair& qp, IoVector& parts) noexcept;
  Io copy_failed(QueuePair& qp, int error) noexcept;
  bool gather(QueuePair& qp, Pins& pins, IoVector& out) noexcept;
  bool add_segment(QueuePair& qp, const Segment& segment, std::uint32_t done, Pins& pins,
                   IoVector& out) noexcept;
  void advance(std::size_t nbytes) noexcept;

  struct Frame {
    alignas(8) std::array<std::byte, wire::kMaxControl> control;
    std::array<Segment, wire::kMaxPackets> segments;
  };

  void finish() noexcept;  // the current frame

  Borrowed<Frame> frame_;
  std::size_t control_nbytes_ = 0;  // 0: no current frame
  std::size_t control_sent_ = 0;
  bool faulty_ = false;  // the frame goes through the queue pair's FaultyWire
  std::size_t packets_ = 0;
  std::size_t segment_count_ = 0;
  std::size_t segment_ = 0;         // being sent
  std::uint32_t segment_sent_ = 0;  // bytes of it
};

}  // namespace zerohop::softhca
