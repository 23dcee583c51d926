// The messages between two endpoints on the control channel: plain values and their encoding.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/channel/address.hpp"
#include "engine/channel/endpoint_key.hpp"
#include "engine/rail.hpp"
#include "rdma/queue_pair.hpp"

namespace zerohop::engine {

inline constexpr std::uint32_t kControlVersion = 10;         // of the messages, sent in Hello
inline constexpr std::size_t kMaxNameBytes = 4096;           // names, host names, reasons
inline constexpr std::size_t kMaxRemoteMemoryBytes = 65536;  // an encoded RemoteMemory

// The first message of either side: its identity, and what the other needs to connect its queue
// pair.
struct Hello {
  std::uint32_t version = kControlVersion;
  EndpointId id{};
  IdProof proof;  // proof of the id
  std::string name;
  std::string host_name;
  std::uint32_t pid = 0;
  // One per rail, at most kMaxRails; number 0: that rail's device is gone. Rail i connects to rail
  // i.
  std::vector<rdma::QueuePairAddress> queue_pairs;
  std::uint8_t global_atomics = 0;  // 1: atomics of its devices are atomic with each other's
  std::uint32_t receive_slots = 0;  // messages that the other side may have in flight, on each
  std::uint32_t slot_nbytes = 0;
  // Where processes of the sender's host request its memory, and the token that admits this one;
  // empty: nowhere.
  std::string local_server;
  std::array<std::byte, 32> token{};
  // How many established connections with the receiver the sender has seen. Distinguishes a
  // reconnection from two first connections that crossed.
  std::uint32_t established = 0;
  std::uint8_t integrity = 0;  // 1: it wants transfers between the two to be checked
};

struct Ready {};  // the sender's queue pair can receive

struct Lookup {
  std::uint64_t request = 0;
  std::string name;
};

struct Found {
  std::uint64_t request = 0;
  std::vector<std::byte> memory;  // RemoteMemory::to_bytes
};

struct NotFound {
  std::uint64_t request = 0;
};

struct Heartbeat {
  std::uint64_t sequence = 0;
};

// A fresh queue pair after an error, or none any more (number 0). The sender's old one is gone:
// what was in flight to it has no effect.
struct Requeue {
  std::uint8_t rail = 0;
  std::uint32_t generation = 0;
  rdma::QueuePairAddress queue_pair;
};

struct Bye {
  // Causes. kCrossing: two connections crossed, and the other one continues. kFull: no place for
  // another Peer.
  static constexpr std::uint8_t kLeft = 0;
  static constexpr std::uint8_t kCrossing = 1;
  static constexpr std::uint8_t kFull = 2;

  std::string reason;  // for the user
  std::uint8_t cause = kLeft;
};

// Asks for the remote end of a queue pair of that rail, which kernels of the sender will drive.
struct OpenDirect {
  std::uint64_t request = 0;
  std::uint8_t rail = 0;
  rdma::QueuePairAddress queue_pair;
};

// The answer, or the reason for a refusal.
struct DirectOpened {
  std::uint64_t request = 0;
  rdma::QueuePairAddress queue_pair;
  std::uint64_t slots = 0;  // address of the sender's notification slot 0, and its key
  std::uint32_t slots_key = 0;
  std::string refusal;  // empty: granted
};

struct CloseDirect {
  std::uint64_t request = 0;
};

inline constexpr std::size_t kMaxSums = 128;  // per SumUp; also the most parts per SumUp

// Asks for the checksums of bytes [first, first + nbytes) of the receiver's memory, counted in C
// order: one per kSummedNbytes, as in Checksums.
struct SumUp {
  struct Part {
    std::vector<std::byte> memory;  // RemoteMemory::to_bytes: also the right to it
    std::uint64_t first = 0;
    std::uint64_t nbytes = 0;
  };
  std::uint64_t request = 0;
  std::vector<Part> parts;
};

// The answer: the sums of all parts in order, or the reason for a refusal.
struct SummedUp {
  std::uint64_t request = 0;
  std::vector<std::uint32_t> sums;
  std::uint32_t status = 0;  // 0: sums are present; else an ibv_wc_status
  std::string refusal;       // ... with the reason
};

// The position in this list is the kind on the wire: append only.
using ControlMessage = std::variant<Hello, Ready, Lookup, Found, NotFound, Heartbeat, Requeue, Bye,
                                    OpenDirect, DirectOpened, CloseDirect, SumUp, SummedUp>;

// Throws ProtocolError when a field is longer than its limit.
std::vector<std::byte> encode(const ControlMessage& message);

// Throws ProtocolError for bytes that encode() does not produce.
ControlMessage decode_control_message(std::span<const std::byte> bytes);

}  // namespace zerohop::engine
