// The small messages that travel as SENDs behind the data on a queue pair.
//
// A notification is one of them: an immediate has 32 bits, a notification a slot number and a
// 32-bit value. The completion of a receive makes all earlier RDMA writes of the same queue pair
// visible (InfiniBand Architecture Specification 1, 9.5; FACTS: also with relaxed ordering), so a
// SEND orders as WRITE_WITH_IMM does.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace zerohop::engine {

enum class MessageKind : std::uint16_t {
  notify = 1,  // tag: slot, value: the value
  eager = 2,   // tag; nbytes of payload follow
  // tag; nbytes lie at address under the key `value`, to be read by the receiver; id. A payload is
  // the key of staged memory, to be asked for instead.
  offer = 3,
  taken = 4,  // id: the receiver is done with that offer; value: 0, or an ibv_wc_status why not
  // nbytes at address under the key `value`, and ranges of the receiver's staged memory: it copies
  pull = 5,             // from there into the ranges
  push = 6,             // from the ranges to there
  notify_and_tell = 7,  // as notify; the receiver says at once how many messages it has taken
  // As those without it; the last bytes of the payload are the checksum of the array (Seal).
  sealed_eager = 8,
  sealed_offer = 9,
};

using Seal = std::uint32_t;

// As it lies in the receive slot: little-endian, which both ends are.
struct Message {
  MessageKind kind;
  std::uint16_t taken = 0;  // how many messages the sender has taken from us, modulo 2^16
  std::uint32_t tag = 0;
  std::uint32_t value = 0;
  std::uint32_t id = 0;
  std::uint64_t nbytes = 0;
  std::uint64_t address = 0;
};

constexpr bool is_notification(MessageKind kind) noexcept {
  return kind == MessageKind::notify || kind == MessageKind::notify_and_tell;
}

static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) == 32);
static_assert(std::endian::native == std::endian::little);

}  // namespace zerohop::engine
