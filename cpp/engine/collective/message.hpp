// A message between two ranks, as it lies in the other one's inbox: what it says, and of which
// block.
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
  data,      // the block itself, behind the header
  announce,  // a block will be written as soon as the other side is ready
  ready,     // where to: the bytes of a RemoteMemory, behind the header
  done,      // it has been written there
};

// Of one block. Sender and receiver have equal ones, or have not made the same call.
struct Label {
  Kind kind{};
  std::array<std::uint8_t, 3> unused{};
  std::int32_t root = kNoRoot;
  // Of the call: those of a World in order; of send_recv those from one rank to the other.
  std::uint64_t number = 0;
  std::uint64_t nbytes = 0;  // of the block that the call names; a message may be about a part
  std::uint32_t part = 0;
  std::uint32_t digest = 0;  // as the CallLog has it; of send_recv 0
  DTypeName dtype{};

  friend bool operator==(const Label&, const Label&) = default;
};

struct Header {
  Label label;
  What what{};
  std::uint8_t unused = 0;
  std::uint16_t emptied = 0;  // messages from the other side taken so far, modulo 2^16
  std::uint32_t length = 0;   // bytes of what lies behind it
};
static_assert(sizeof(Header) == 64, "it goes from one process to another");

// Bytes of a block that goes along with its header; a larger one is written to where it belongs,
// once that is known, which takes one more message. Between two processes of one busy host of two
// cores, by p2p, send_recv took 118 us of 64 KiB that went along and 215 us written, and of 256 KiB
// 175 and 533 us; but an inbox for each other rank has room for four of it.
inline constexpr std::size_t kEager = std::size_t{64} << 10;
inline constexpr std::size_t kLongest = sizeof(Header) + kEager;
inline constexpr std::size_t kMostReady = std::size_t{2} << 10;  // bytes of a RemoteMemory

struct Message {
  Header header;
  std::span<const std::byte> payload;  // in the inbox, or:
  std::vector<std::byte> kept;         // of one that is taken later
  bool in_inbox = false;
};

// Throws ProtocolError. bytes: kLongest, the message first.
Message read_message(std::span<const std::byte> bytes);

}  // namespace zerohop::engine::collective
