// The small messages sent as SENDs behind the data on a queue pair.
//
// A notification is one of them: an immediate has 32 bits, but a notification needs a slot number
// and a 32-bit value. The completion of a receive makes all earlier RDMA writes of the same queue
// pair visible (InfiniBand Architecture Specification 1, 9.5; FACTS: also with relaxed ordering),
// so a SEND orders like WRITE_WITH_IMM.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace zerohop::engine {

enum class MessageKind : std::uint16_t {
  notify = 1,  // tag: slot, value: the value
  eager = 2,   // tag; nbytes of payload follow
  // tag; nbytes lie at address under the key `value`, for the receiver to read; id. A payload is
  // the key of staged memory, to be requested instead.
  offer = 3,
  taken = 4,  // id: the receiver is done with that offer; value: 0, or an ibv_wc_status
  // nbytes at address under the key `value`, and ranges of the receiver's staged memory: it copies
  pull = 5,             // from there into the ranges
  push = 6,             // from the ranges to there
  notify_and_tell = 7,  // as notify; the receiver returns its message count at once
  // Like those without "sealed"; the last bytes of the payload are the checksum of the array
  // (Seal).
  sealed_eager = 8,
  sealed_offer = 9,
};

using Seal = std::uint32_t;

// The upper half of a tag. A program's own messages have context 0, and each group of ranks that
// share a Peer has one of its own (MPI: the context of a communicator).
using Context = std::uint32_t;
constexpr Context context_of(std::uint64_t tag) noexcept { return static_cast<Context>(tag >> 32); }

// The layout in the receive slot: little-endian, like both ends.
struct Message {
  MessageKind kind;
  std::uint16_t taken = 0;  // how many of our messages the sender has taken, modulo 2^16
  std::uint32_t value = 0;
  std::uint64_t tag = 0;
  std::uint32_t id = 0;
  std::uint32_t unused = 0;
  std::uint64_t nbytes = 0;
  std::uint64_t address = 0;
};

constexpr std::uint32_t slot_of(const Message& notification) noexcept {
  return static_cast<std::uint32_t>(notification.tag);
}

constexpr bool is_notification(MessageKind kind) noexcept {
  return kind == MessageKind::notify || kind == MessageKind::notify_and_tell;
}

static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) == 40);
static_assert(std::endian::native == std::endian::little);

}  // namespace zerohop::engine
