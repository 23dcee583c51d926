// What two endpoints say to each other on the control channel: plain values and their encoding.
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

inline constexpr std::uint32_t kControlVersion = 8;          // of the messages, told in Hello
inline constexpr std::size_t kMaxNameBytes = 4096;           // names, host names, reasons
inline constexpr std::size_t kMaxRemoteMemoryBytes = 65536;  // an encoded RemoteMemory

// First message of either side: who it is, and what the other needs to connect its queue pair.
struct Hello {
  std::uint32_t version = kControlVersion;
  EndpointId id{};
  IdProof proof;  // that it is the one
  std::string name;
  std::string host_name;
  std::uint32_t pid = 0;
  // One a rail, kMaxRails at most; number 0: that rail's device is gone. Rail i meets rail i.
  std::vector<rdma::QueuePairAddress> queue_pairs;
  std::uint8_t global_atomics = 0;  // 1: its devices' atomics are atomic with one another's
  std::uint32_t receive_slots = 0;  // messages the other side may have on its way, on each
  std::uint32_t slot_nbytes = 0;
  // Where processes of the sender's host come for its memory, and what lets this one in; empty:
  // nowhere.
  std::string local_server;
  std::array<std::byte, 32> token{};
  // How many connections with the receiver the sender has seen established. Tells a reconnection
  // from two first connections that crossed each other.
  std::uint32_t established = 0;
  std::uint8_t integrity = 0;  // 1: it wants what the two transfer to be checked
};

struct Ready {};  // the sender's queue pair takes messages

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
// what was still on its way to it has no effect.
struct Requeue {
  std::uint8_t rail = 0;
  std::uint32_t generation = 0;
  rdma::QueuePairAddress queue_pair;
};

struct Bye {
  // Causes. kCrossing: two connections crossed, and the other one goes on. kFull: there is no place
  // for one more Peer.
  static constexpr std::uint8_t kLeft = 0;
  static constexpr std::uint8_t kCrossing = 1;
  static constexpr std::uint8_t kFull = 2;

  std::string reason;  // for the user
  std::uint8_t cause = kLeft;
};

// Asks for the other end of a queue pair of that rail which kernels of the sender drive.
struct OpenDirect {
  std::uint64_t request = 0;
  std::uint8_t rail = 0;
  rdma::QueuePairAddress queue_pair;
};

// The answer; or why not.
struct DirectOpened {
  std::uint64_t request = 0;
  rdma::QueuePairAddress queue_pair;
  std::uint64_t slots = 0;  // address of the sender's notification slot 0, and the key to them
  std::uint32_t slots_key = 0;
  std::string refusal;  // empty: it is there
};

struct CloseDirect {
  std::uint64_t request = 0;
};

inline constexpr std::size_t kMaxSums = 128;  // of one SumUp, and parts that they are of

// Asks for the checksums of bytes [first, first + nbytes) of the receiver's memory, counted in C
// order: one for every kSummedNbytes of them, as Checksums has it.
struct SumUp {
  struct Part {
    std::vector<std::byte> memory;  // RemoteMemory::to_bytes: the right to it as well
    std::uint64_t first = 0;
    std::uint64_t nbytes = 0;
  };
  std::uint64_t request = 0;
  std::vector<Part> parts;
};

// The answer: of all parts one after the other; or why not.
struct SummedUp {
  std::uint64_t request = 0;
  std::vector<std::uint32_t> sums;
  std::uint32_t status = 0;  // 0: they are there; else an ibv_wc_status
  std::string refusal;       // ... and why
};

// The position in this list is the kind on the wire: append only.
using ControlMessage =
    std::variant<Hello, Ready, Lookup, Found, NotFound, Heartbeat, Requeue, Bye, OpenDirect,
                 DirectOpened, CloseDirect, SumUp, SummedUp>;

// Throws ProtocolError when a field is longer than its limit.
std::vector<std::byte> encode(const ControlMessage& message);

// Throws ProtocolError for bytes that encode() does not make.
ControlMessage decode_control_message(std::span<const std::byte> bytes);

}  // namespace zerohop::engine
