// Reads frames (wire.hpp) from the socket. Control sections go into a small look-ahead buffer.
// Payload goes directly to its place, with the look-ahead buffer as the last element of the same
// readv; for memory that the CPU cannot access, through a Bounce. So big and small messages both
// cost about one system call per frame, and at most a buffer of a frame's payload is ever copied.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "softhca/borrowed.hpp"
#include "softhca/landing.hpp"
#include "softhca/wire.hpp"

namespace zerohop::softhca {

class QueuePair;

class FrameReader {
 public:
  // Handles what has arrived, within a budget that gives other connections their turn. Returns
  // whether there was anything. Errors are recorded as a Failure of the queue pair.
  bool read(QueuePair& qp) noexcept;

  // Handles everything up to the end of the stream, after the other side has closed.
  void read_rest(QueuePair& qp) noexcept;

  void reset() noexcept;

 private:
  enum class Step { progress, starved, failed };  // starved: the next byte has not arrived

  bool read_some(QueuePair& qp) noexcept;
  bool settle(QueuePair& qp) noexcept;
  Step parse(QueuePair& qp) noexcept;
  Step begin_frame(QueuePair& qp) noexcept;
  Step begin_checked(QueuePair& qp) noexcept;
  Step take_frame(QueuePair& qp, std::uint32_t packets_at) noexcept;
  Step await() noexcept;
  bool make_room() noexcept;
  Step next_packet(QueuePair& qp) noexcept;
  Step open_packet(QueuePair& qp) noexcept;
  Step take_payload(QueuePair& qp) noexcept;
  Step close_packet(QueuePair& qp) noexcept;
  Step store(QueuePair& qp, const std::byte* from, std::uint32_t nbytes) noexcept;
  bool decode(std::uint32_t& at, wire::Packet& packet) const noexcept;
  Step receive(QueuePair& qp) noexcept;
  bool gather(QueuePair& qp, Pins& pins, IoVector& out, std::uint32_t& ahead) noexcept;
  bool gather_ahead(QueuePair& qp, Pins& pins, IoVector& out, std::uint32_t& ahead) noexcept;
  Step discard(QueuePair& qp) noexcept;
  Step corrupt(QueuePair& qp) noexcept;
  Step withdrawn(QueuePair& qp, std::uint32_t placed) noexcept;
  Step lost(QueuePair& qp, ssize_t result) noexcept;
  void accept_bytes(std::size_t nbytes, std::uint32_t ahead) noexcept;

  // Twice the largest control section, so that half the buffer always remains for look-ahead behind
  // one.
  static constexpr std::size_t kBuffer = 2 * wire::kMaxControl;
  static constexpr std::size_t kLarge = kBuffer + wire::kCheckedPayload;

  struct Small {
    alignas(8) std::array<std::byte, kBuffer> bytes;
  };

  bool take_buffer(QueuePair& qp) noexcept;
  void give_buffer_back() noexcept;  // if it holds nothing needed

  Borrowed<Small> small_;
  std::unique_ptr<std::byte[]> large_;  // for checked frames, which are read as a whole
  std::span<std::byte> buffer_;         // the one in use
  std::uint32_t begin_ = 0;             // received but not consumed: [begin_, end_)
  std::uint32_t end_ = 0;
  bool short_read_ = false;  // the last call returned less than requested: the socket is empty

  std::uint32_t next_checked_ = 0;  // number of the next checked frame

  bool in_frame_ = false;
  std::uint32_t packet_at_ = 0;    // in the buffer: the frame's next packet
  std::uint32_t control_end_ = 0;  // in the buffer: end of the control section
  std::uint32_t packets_left_ = 0;

  bool in_packet_ = false;
  wire::Packet packet_{};
  wire::Operands operands_{};
  Landing landing_{};
  bool response_ = false;           // the packet answers one of our requests
  std::uint32_t payload_done_ = 0;  // bytes of its payload that are in place
  std::uint32_t ahead_ = 0;         // payload bytes of later packets of the frame that are in place
};

}  // namespace zerohop::softhca
