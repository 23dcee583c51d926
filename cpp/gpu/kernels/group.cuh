// What the kernels of collectives share: waits for other ranks, which end in any case.
#pragma once

#include "gpu/group_call.hpp"
#include "gpu/kernels/elements.cuh"
#include "gpu/kernels/words.cuh"
#include "zerohop/copy.h"
#include "zerohop/team.cuh"

namespace zerohop::gpu {

// 8 bytes of a block, with a tag in each half. Each half arrives as a whole, over any link.
struct Packet {
  u64 low, high;

  static __device__ Packet of(u64 data, u32 number, u32 hash) {
    return {(data & 0xffffffffu) | u64{number} << 32, data >> 32 | u64{number ^ hash} << 32};
  }
  __device__ bool is_of(u32 number, u32 hash) const {
    return low >> 32 == number && high >> 32 == (number ^ hash);
  }
  __device__ u64 data() const { return (low & 0xffffffffu) | high << 32; }
};

__device__ inline void store_packet(u64 at, const Packet& packet) {
  put_pair(at, packet.low, packet.high);
}
__device__ inline Packet load_packet(u64 at) {
  Packet packet;
  glance_at_pair(at, packet.low, packet.high);
  return packet;
}
__device__ inline Packet acquire_packet(u64 at) {
  Packet packet;
  acquire_pair(at, packet.low, packet.high);
  return packet;
}

__device__ inline bool has(u32 ranks, u32 rank) { return (ranks >> rank & 1) != 0; }

// Of one thread, in one launch.
class Patience {
 public:
  __device__ explicit Patience(const GroupCall& call)
      : call_(call),
        began_(nanoseconds_now()),
        look_for_cancel_(began_ + (1 + threadIdx.x % kLooksForCancel) * kMillisecond) {}

  // Called after each fruitless look at what `rank` sends. False: give up.
  __device__ bool goes_on(u32 rank) { return ++looks_ % kLooks != 0 || look_around(rank); }

 private:
  static constexpr u32 kLooks = 64;
  // A load of host memory takes the link for about 20 ns. So of all threads that wait only some
  // look there in each millisecond; what one finds, the others see in kBroken.
  static constexpr u32 kLooksForCancel = 64;
  static constexpr u64 kMillisecond = 1'000'000;  // of nanoseconds_now()

  // Records that this call failed, and makes all later ones fail at once.
  __device__ bool fail(GroupEnd::What what, u32 rank, u64 other) {
    store_packet(call_.end, Packet{what | u64{rank} << 32, other});
    put_word(own() + GroupArena::kBroken, u32{1});
    return false;
  }
  __device__ u64 own() const { return call_.arenas[call_.rank]; }

  // False: give up. Block 0 alone compares the calls: it knows this one's number.
  __device__ bool look_around(u32 rank) {
    if (glance(own() + GroupArena::kBroken) != 0) return false;  // another block has given up
    const Note shown = acquire_note(shown_by(rank));
    if (blockIdx.x == 0 && is_this(shown) && shown >> 32 != call_.hash) {
      return fail(GroupEnd::differs, rank, code_of(rank));
    }
    if (glance(own() + GroupArena::left(rank)) != 0) {
      if (left_ == rank) return fail(GroupEnd::left, rank, code_of(rank));
      left_ = rank;
      fence_system();  // what it stored before is there at the next look
    }
    const u64 now = nanoseconds_now();
    if (now >= look_for_cancel_) {
      look_for_cancel_ = now + kLooksForCancel * kMillisecond;
      if (glance(call_.cancelled) != 0) return fail(GroupEnd::cancelled, rank, code_of(rank));
    }
    if (now - began_ < call_.nanoseconds) return true;
    return fail(GroupEnd::late, rank, is_this(shown) ? 0 : code_of(rank));
  }

  // The latest call of that rank.
  __device__ u64 shown_by(u32 rank) const { return own() + GroupArena::call(rank); }
  __device__ bool is_this(Note shown) const {
    return static_cast<u32>(shown) == glance(own() + GroupArena::counts(0) + 8) + 1;
  }
  __device__ u64 code_of(u32 rank) const { return glance_at_note(shown_by(rank) + sizeof(Note)); }

  const GroupCall& call_;
  const u64 began_;
  u64 look_for_cancel_;
  u32 looks_ = 0;
  u32 left_ = ~u32{0};  // a rank that has left
};

// What earlier calls have left in this rank's arena for this block of threads: GroupArena::Counts,
// and whether one has failed. The loads are under way together.
struct Earlier {
  u32 packets, chunks;
  u32 calls;  // in that of block 0
  u32 broken;

  static __device__ Earlier of(const GroupCall& call) {
    const u64 own = call.arenas[call.rank], counts = own + GroupArena::counts(blockIdx.x);
    return {glance(counts), glance(counts + 4), glance(counts + 8),
            glance(own + GroupArena::kBroken)};
  }
};

// Shows the others which call this is. Called by all threads.
__device__ inline void show(const GroupCall& call, u32 number) {
  const u32 to = threadIdx.x;
  if (blockIdx.x != 0 || to >= call.size || to == call.rank) return;
  store_packet(call.arenas[to] + GroupArena::call(call.rank),
               Packet{number | u64{call.hash} << 32, call.code});
}
// Counts it.
__device__ inline void leave(const GroupCall& call, u32 number) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  put_word(call.arenas[call.rank] + GroupArena::counts(0) + 8, number);
}

__device__ inline Reducing<SourceRanks> reducing_of(const GroupCall& call) {
  return {static_cast<ReduceOp>(call.op), {call.sources}, call.factor};
}

}  // namespace zerohop::gpu
