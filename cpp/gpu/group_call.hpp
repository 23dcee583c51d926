// A collective among GPUs that reach each other's memory: the arguments of its kernel, and the
// arena of each rank, through which blocks go. Included by host code and by kernels.
//
// There are three ways. Packets: in every 8 bytes that a rank stores into another's arena half are
// of the block, and half are a tag, so the data is its own notification (NCCL calls that LL).
// Chunks: a block of threads stores part of a block, and then a flag. In place: if the arrays of
// all ranks lie in the same registered memory, kernels access them there, and nothing passes the
// arenas but where they lie, and one flag. Each block of threads counts its own packets and chunks
// in its rank's arena. So a launch has no number of its own, and a CUDA graph may repeat it.
#pragma once

#include <cstdint>

namespace zerohop::gpu {

constexpr unsigned kGroupRanks = 8;      // at most
constexpr unsigned kGroupBlocks = 256;   // of threads, at most
constexpr unsigned kGroupThreads = 256;  // of each block

// How elements are kept, for the kernels' choice of a type.
enum class GroupType : std::uint32_t {
  boolean,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  complex64,
  complex128,
};

// Offsets in an arena. Its size depends on the number of ranks.
struct GroupArena {
  std::uint64_t size;  // ranks

  // Bytes of a block that packets carry at most, and that a block of threads stores at a time.
  constexpr std::uint64_t packet_bytes() const { return (std::uint64_t{1} << 21) / size / 8 * 8; }
  constexpr std::uint64_t chunk_bytes() const { return (std::uint64_t{1} << 16) / size / 16 * 16; }
  static constexpr unsigned kTurns = 2;  // chunks of a block of threads that are on their way

  struct Counts {           // of one block of threads
    std::uint32_t packets;  // calls by packets
    std::uint32_t chunks;   // chunks
    std::uint32_t calls;    // in those of block 0
  };
  // Another rank's latest call, as its block 0 began it.
  struct Call {
    std::uint32_t number;
    std::uint32_t hash;  // and the next: as in its GroupCall
    std::uint64_t code;
  };
  static constexpr std::uint64_t kBroken = 0;  // 32 bits: a call has failed, so all later ones do
  static constexpr std::uint64_t kCalls = 128;
  static constexpr std::uint64_t kLeft = 512;
  static constexpr std::uint64_t kCounts = 1024;
  static constexpr std::uint64_t kFirst = kCounts + kGroupBlocks * sizeof(Counts);
  static constexpr std::uint64_t kFlags = kGroupBlocks * kGroupRanks * std::uint64_t{8};
  static constexpr std::uint64_t kSecond = kFirst + kTurns * kFlags;
  static constexpr std::uint64_t kShown = kSecond + kFlags;
  static constexpr std::uint64_t kPackets = kShown + kFlags * 4;

  static constexpr std::uint64_t counts(unsigned block) { return kCounts + block * sizeof(Counts); }
  static constexpr std::uint64_t call(unsigned rank) { return kCalls + rank * sizeof(Call); }
  // 32 bits, not 0: that rank has left, and all that it will ever store is there.
  static constexpr std::uint64_t left(unsigned rank) {
    return kLeft + rank * sizeof(std::uint32_t);
  }
  // 64 bits: a chunk's number and the code's hash, stored by `rank`. The first flags of a block are
  // as many as chunks on their way, so that each stays until it has been compared.
  static constexpr std::uint64_t first(unsigned block, unsigned turn, unsigned rank) {
    return kFirst + turn * kFlags + (block * kGroupRanks + rank) * std::uint64_t{8};
  }
  static constexpr std::uint64_t second(unsigned block, unsigned rank) {
    return kSecond + (block * kGroupRanks + rank) * std::uint64_t{8};
  }
  // Two packets, stored by `rank`: where its arrays lie in registered memory. They stay until they
  // have been read: a rank ends a call only after the others have seen what it showed.
  static constexpr std::uint64_t shown(unsigned block, unsigned rank) {
    return kShown + (block * kGroupRanks + rank) * std::uint64_t{32};
  }
  // Two sets, used in turn: a rank that stores into one knows that it has been read, since it has
  // received the packets of the call after that.
  constexpr std::uint64_t packets(unsigned set, unsigned rank) const {
    return kPackets + (set * size + rank) * packet_bytes() * 2;
  }
  constexpr std::uint64_t chunks() const { return packets(2, 0); }
  // Where rank `from` stores a chunk of its block in the arena of rank `at`, and of its result.
  constexpr std::uint64_t chunk(unsigned block, unsigned turn, unsigned from, unsigned at) const {
    const std::uint64_t place = (from + size - at - 1) % size;  // a rank has none in its own
    return chunks() + ((block * kTurns + turn) * (size - 1) + place) * chunk_bytes();
  }
  constexpr std::uint64_t result(unsigned block, unsigned turn, unsigned from, unsigned at) const {
    return chunk(kGroupBlocks + block, turn, from, at);
  }
  constexpr std::uint64_t nbytes() const {
    return chunks() + 2 * kGroupBlocks * kTurns * (size - 1) * chunk_bytes();
  }
};

// How a call ended, in pinned memory; stored only by one that failed.
struct alignas(16) GroupEnd {
  enum What : std::uint32_t { fine, late, cancelled, differs, left };
  std::uint32_t what = fine;
  std::uint32_t rank = 0;   // that did not come, made another call, or has left
  std::uint64_t other = 0;  // that rank's code
};

// Addresses are this GPU's; 0: none.
struct GroupCall {
  std::uint64_t arenas[kGroupRanks] = {};    // by rank
  std::uint64_t lengths[kGroupRanks] = {};   // bytes of the block that each rank receives
  std::uint64_t sends[kGroupRanks] = {};     // the block for each rank; the own one, too
  std::uint64_t receives[kGroupRanks] = {};  // where the block of each rank goes; not in reductions
  std::uint64_t gathers[kGroupRanks] = {};   // where the result of each rank goes
  std::uint64_t parts[kGroupRanks] = {};     // where the registered memory of each rank begins
  std::uint64_t result = 0;                  // where this rank's result goes
  std::uint64_t cancelled = 0;               // 32 bits of pinned memory; not 0: stop waiting
  std::uint64_t end = 0;                     // a GroupEnd
  std::uint64_t nanoseconds = 0;             // bound of all waits together
  std::uint64_t code = 0;                    // of the call: the same on all ranks
  std::uint64_t chunk = 0;                   // bytes, a multiple of 16
  double factor = 1;                         // of premul_sum
  std::uint32_t hash = 0;                    // of all that is the same on all ranks
  std::uint32_t rank = 0, size = 1;
  std::uint32_t sources = 0;   // bit for each rank whose block this one receives, or reduces
  std::uint32_t audience = 0;  // bit for each other rank that gets this one's result
  std::uint32_t op = 0;        // a ReduceOp
  std::uint32_t part = 0;      // which registered memory `parts` are of: the same on all ranks
  GroupType type = GroupType::uint8;
};

}  // namespace zerohop::gpu
