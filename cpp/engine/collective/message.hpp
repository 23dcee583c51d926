// A message between two ranks, as laid out in the receiver's inbox: its kind, and its block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/collective/call_log.hpp"

namespace zerohop::engine::collective {

using Rank = std::uint32_t;

enum class What : std::uint8_t {
  data,      // the block itself, after the header
  announce,  // a block will be written once the other side is ready
  ready,     // the target: the bytes of a RemoteMemory, after the header; none: in slices
  done,      // the block has been written
  ask,       // the block cannot be sent in slices: where is its target?
};

// Identifies a block. Sender and receiver have equal labels, or have made different calls.
struct Label {
  Kind kind{};
  std::array<std::uint8_t, 3> unused{};
  std::int32_t root = kNoRoot;
  // The call's number: in a World in order; for send_recv per pair of ranks and direction.
  std::uint64_t number = 0;
  std::uint64_t nbytes = 0;  // of the block named in the call; a message may concern a part
  std::uint32_t part = 0;
  std::uint32_t digest = 0;  // as in the CallLog; 0 for send_recv
  DTypeName dtype{};

  friend bool operator==(const Label&, const Label&) = default;
};

struct Header {
  Label label;
  What what{};
  std::uint8_t proposes = 0;  // not 0: the sender proposes a GpuGroup for later calls
  std::uint16_t emptied = 0;  // messages from the other side consumed so far, modulo 2^16
  std::uint32_t length = 0;   // bytes after the header
};
static_assert(sizeof(Header) == 64, "it goes from one process to another");

// Blocks up to this size are sent with their header, larger ones in slices of this size, or they
// are written to their target once that is known, which takes one more message. Between two
// processes of one busy host with two cores, by p2p, send_recv of 64 KiB took 118 us with the
// header and 215 us written, of 256 KiB 175 and 533 us; but the inbox for each other rank must hold
// four blocks of this size.
inline constexpr std::size_t kEager = std::size_t{64} << 10;
inline constexpr std::size_t kLongest = sizeof(Header) + kEager;
inline constexpr std::size_t kMostReady = std::size_t{2} << 10;  // bytes of a RemoteMemory

struct Message {
  Header header;
  std::span<const std::byte> payload;  // in the inbox, or:
  std::vector<std::byte> kept;         // copy of a message consumed later
  bool in_inbox = false;
};

// Throws ProtocolError. bytes: kLongest of them; the message comes first.
Message read_message(std::span<const std::byte> bytes);

}  // namespace zerohop::engine::collective
