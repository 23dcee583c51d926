// Work queue entries and completions in the layout of mlx5 adapters (rdma-core,
// infiniband/mlx5dv.h: mlx5_wqe_ctrl_seg, _raddr_seg, _data_seg, _inl_data_seg, _atomic_seg,
// mlx5_cqe64): big-endian segments of 16 bytes, in blocks of 64. Only values: nothing here accesses
// a queue. Each entry takes one block.
#pragma once

#include "zerohop/integers.h"

namespace zerohop::device::mlx5 {

constexpr u32 kBlockBytes = 64;
constexpr u32 kMostInline = 28;  // bytes of data that fit after the segments of a write

enum Opcode : u32 {
  kNop = 0x00,
  kWrite = 0x08,
  kWriteImmediate = 0x09,
  kRead = 0x10,
  kCompareSwap = 0x11,
  kFetchAdd = 0x12,
  kDump = 0x23,
};

enum Flags : u32 {
  kNone = 0,
  kSignaled = 2u << 2,  // MLX5_WQE_CTRL_CQ_UPDATE
  kFence = 4u << 5,     // MLX5_WQE_CTRL_FENCE: reads and atomics before are done
  // Nor does it overtake writes, on adapters that reorder them (STRONG_ORDER in UCX,
  // rc_mlx5_common.c).
  kStrongOrder = 3u << 5,
};

ZEROHOP_BOTH constexpr u32 swapped(u32 x) {
  return x >> 24 | (x >> 8 & 0xff00) | (x & 0xff00) << 8 | x << 24;
}

// A block, word by word as in memory.
struct alignas(16) Block {
  u32 words[kBlockBytes / 4] = {};

  // The value for the doorbell register, one 64-bit store.
  ZEROHOP_BOTH u64 doorbell() const { return u64{words[1]} << 32 | words[0]; }
};

// The start of every entry. index: of its block, a running count; the entry has 16 bits of it.
struct Head {
  u32 queue_pair = 0;
  u32 index = 0;
  u32 flags = kSignaled;
};
struct Range {
  u64 address = 0;
  u32 key = 0;
};

namespace parts {

constexpr u32 kSegmentWords = 4;

ZEROHOP_BOTH inline Block begin(const Head& head, Opcode opcode, u32 segments) {
  Block block;
  block.words[0] = swapped((head.index & 0xffff) << 8 | opcode);
  block.words[1] = swapped(head.queue_pair << 8 | segments);
  block.words[2] = swapped(head.flags);  // the last byte of its word
  return block;
}
ZEROHOP_BOTH inline void put_address(Block& block, u32 word, u64 address) {
  block.words[word] = swapped(static_cast<u32>(address >> 32));
  block.words[word + 1] = swapped(static_cast<u32>(address));
}
// After the control segment.
ZEROHOP_BOTH inline void put_remote(Block& block, const Range& remote) {
  put_address(block, kSegmentWords, remote.address);
  block.words[kSegmentWords + 2] = swapped(remote.key);
}
ZEROHOP_BOTH inline void put_data(Block& block, u32 segment, const Range& local, u32 nbytes) {
  const u32 word = segment * kSegmentWords;
  block.words[word] = swapped(nbytes);
  block.words[word + 1] = swapped(local.key);
  put_address(block, word + 2, local.address);
}

}  // namespace parts

ZEROHOP_BOTH inline Block nop(const Head& head) { return parts::begin(head, kNop, 1); }

// kWrite or kRead of `nbytes`, 1 to 2**30.
ZEROHOP_BOTH inline Block move(const Head& head, Opcode opcode, const Range& remote,
                               const Range& local, u32 nbytes) {
  Block block = parts::begin(head, opcode, 3);
  parts::put_remote(block, remote);
  parts::put_data(block, 2, local, nbytes);
  return block;
}

// The adapter reads `nbytes` of local memory, and drops them: what it wrote there before is then
// visible. Signaled, it completes behind that.
ZEROHOP_BOTH inline Block dump(const Head& head, const Range& local, u32 nbytes) {
  Block block = parts::begin(head, kDump, 2);
  parts::put_data(block, 1, local, nbytes);
  return block;
}

// A write of `nbytes` inline data, kMostInline at most: `data`, as in
// memory.
ZEROHOP_BOTH inline Block write_inline(const Head& head, const Range& remote, const void* data,
                                       u32 nbytes) {
  constexpr u32 kInline = 0x80000000;
  const u32 segments = 2 + (4 + nbytes + 15) / 16;
  Block block = parts::begin(head, kWrite, segments);
  parts::put_remote(block, remote);
  block.words[2 * parts::kSegmentWords] = swapped(nbytes | kInline);
  auto* const to = reinterpret_cast<unsigned char*>(block.words + 2 * parts::kSegmentWords + 1);
  for (u32 i = 0; i < nbytes; ++i) to[i] = static_cast<const unsigned char*>(data)[i];
  return block;
}

// A write without data but with immediate data, which the receiver sees in its byte order: a
// notification.
ZEROHOP_BOTH inline Block notify(const Head& head, u32 immediate) {
  Block block = parts::begin(head, kWriteImmediate, 2);
  block.words[3] = swapped(immediate);
  return block;
}

// 64-bit atomics; the old value goes to `local`.
ZEROHOP_BOTH inline Block fetch_add(const Head& head, const Range& remote, const Range& local,
                                    u64 value) {
  Block block = parts::begin(head, kFetchAdd, 4);
  parts::put_remote(block, remote);
  parts::put_address(block, 2 * parts::kSegmentWords, value);
  parts::put_data(block, 3, local, sizeof(u64));
  return block;
}
ZEROHOP_BOTH inline Block compare_swap(const Head& head, const Range& remote, const Range& local,
                                       u64 expected, u64 desired) {
  Block block = parts::begin(head, kCompareSwap, 4);
  parts::put_remote(block, remote);
  parts::put_address(block, 2 * parts::kSegmentWords, desired);
  parts::put_address(block, 2 * parts::kSegmentWords + 2, expected);
  parts::put_data(block, 3, local, sizeof(u64));
  return block;
}

// The doorbell record: the number of blocks written so far.
ZEROHOP_BOTH constexpr u32 doorbell_record(u32 index) { return swapped(index & 0xffff); }

// The last 8 bytes of a completion, written atomically: whether it is valid, and its entry.
struct Completion {
  u64 last = 0;

  // turn: number of passes through the ring; the owner bit is its lowest bit.
  ZEROHOP_BOTH bool is_there(u32 turn) const {
    constexpr u32 kInvalid = 0xf;
    return opcode() != kInvalid && (last >> 56 & 1) == (turn & 1);
  }
  ZEROHOP_BOTH u32 opcode() const { return static_cast<u32>(last >> 60); }
  ZEROHOP_BOTH bool failed() const { return opcode() == 0xd || opcode() == 0xe; }
  // 16 bits of the index of the completed entry.
  ZEROHOP_BOTH u32 index() const {
    return static_cast<u32>(last >> 32 & 0xff) << 8 | static_cast<u32>(last >> 40 & 0xff);
  }
};

}  // namespace zerohop::device::mlx5
