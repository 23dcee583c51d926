// The data on a connection, in both directions and without any other framing:
//
//   hello                    once from each side (hello.hpp)
//   frame, frame, frame ...  each: [ prefix | packet, packet, ... ] [ payload of these packets ]
//
// A frame is sent by one sendmsg. Its control section (prefix and packets, at most kMaxControl
// bytes) contains the length of the payload behind it, so the receiver reads the control section
// into a small buffer and the payload directly into registered memory. Small payloads are part of
// the control section, behind their packet and padded to 8 bytes (kInline).
//
// Requests are numbered from 0 in the order of posting. The number is sent only with the frame,
// never with a packet. A message longer than kSegmentBytes is split into several packets of the
// same operation with rising addresses; all but the last carry kMore.
//
// All integers are little-endian, like every supported host.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace zerohop::softhca::wire {

static_assert(std::endian::native == std::endian::little, "the wire format is the host's own");

inline constexpr std::size_t kMaxControl = 4096;  // bytes of one control section
inline constexpr std::size_t kMaxPackets = 128;   // per frame
inline constexpr std::uint32_t kInlineBytes =
    256;  // payloads up to this ride in the control section
inline constexpr std::uint32_t kSegmentBytes =
    1u << 20;  // payload of one packet, and of one frame's requests
inline constexpr std::uint32_t kMaxMessage = 1u << 30;  // port_attr.max_msg_sz

enum class Op : std::uint8_t {
  send = 1,             // payload for the head of the receive queue
  write = 2,            // payload for `address` under `key`; kImmediate consumes a receive
  read = 3,             // requests `nbytes` from `address` under `key`
  compare_swap = 4,     // followed by Operands
  fetch_add = 5,        // followed by Operands
  read_response = 6,    // payload; `sequence` is the number of the read
  atomic_response = 7,  // `address` holds the old value; `sequence` is the number of the atomic
  not_ready = 8,        // RNR: request `sequence` found no receive; `detail` is the RNR timer code
  refused = 9,          // request `sequence` was refused; `detail` is a Refusal; nothing follows
};

enum PacketFlag : std::uint8_t {
  kMore = 1,       // further packets of the same message follow
  kImmediate = 2,  // `sequence` holds the immediate data
  kSolicited = 4,
  kInline = 8,  // the payload follows the packet in the control section
};

enum class Refusal : std::uint16_t { invalid_request = 1, access = 2, operation = 3 };

enum FrameFlag : std::uint8_t {
  kRestart = 1,  // requests restart at `first_request` after a not_ready
  kChecked = 2,  // a Check follows the prefix (checked_frame.hpp)
};

struct Prefix {
  std::uint16_t control_bytes;  // of the control section, this prefix included
  std::uint16_t packets;
  std::uint8_t flags;
  std::uint8_t zero[3];
  std::uint32_t first_request;  // number of the first request in this frame
  std::uint32_t acknowledged;   // how many of the receiver's requests the sender has executed
};
static_assert(sizeof(Prefix) == 16);

inline constexpr std::uint32_t kCheckedPayload = 64u << 10;  // bytes after the control section

struct Check {
  std::uint32_t number;         // of the frame: counts checked frames from 0
  std::uint32_t payload_bytes;  // after the control section
  std::uint32_t crc;            // CRC32C of the whole frame, with 0 here
  std::uint32_t zero;
};
static_assert(sizeof(Check) == 16);

struct Packet {
  Op op;
  std::uint8_t flags;
  std::uint16_t detail;
  std::uint32_t sequence;
  std::uint32_t key;
  std::uint32_t nbytes;
  std::uint64_t address;
};
static_assert(sizeof(Packet) == 24);

struct Operands {
  std::uint64_t compare;  // unused by fetch_add
  std::uint64_t operand;  // the new value, or the addend
};
static_assert(sizeof(Operands) == 16);

constexpr std::size_t padded(std::size_t nbytes) { return (nbytes + 7) & ~std::size_t{7}; }

// Sequence numbers wrap: a comes before b if the distance is less than half the circle.
constexpr bool before(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) < 0;
}

}  // namespace zerohop::softhca::wire
