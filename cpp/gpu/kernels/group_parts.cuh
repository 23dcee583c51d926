// How the blocks of threads of all ranks agree on whether they access each other's arrays in place:
// each shows the others where its own lie in registered memory, or sends its first chunk, which
// says that they lie elsewhere. So all ranks see the same, and decide alike.
#pragma once

#include "gpu/kernels/group.cuh"

namespace zerohop::gpu {

// Where this rank finds the blocks of the others, and stores its result for them. By rank.
struct BlockPlaces {
  u64 sources[kGroupRanks];
  u64 targets[kGroupRanks];
};

enum class Way { none, arena, in_place };  // none: give up

// What one packet says: an offset in the registered memory, and half of which memory that is.
class ShownArray {
 public:
  __device__ static u64 of(const GroupCall& call, u64 address, u32 which) {
    const u64 offset = address != 0 ? address - call.parts[call.rank] : 0;
    return offset | u64{which & 0xffff} << kOffsetBits;
  }
  __device__ explicit ShownArray(u64 data) : data_(data) {}
  __device__ bool is_in(u32 which) const { return data_ >> kOffsetBits == (which & 0xffff); }
  __device__ u64 offset() const { return data_ & ((u64{1} << kOffsetBits) - 1); }

 private:
  static constexpr u32 kOffsetBits = 48;
  u64 data_;
};

// Called by all threads, before choose_way(): what this stream has stored into the arrays comes
// before what shows them.
__device__ inline void release_arrays(const GroupCall& call) {
  if (threadIdx.x < call.size && call.parts[call.rank] != 0) fence_system();
}

// Shows that rank where its block lies, and where this rank wants its result.
__device__ inline void show_arrays(const GroupCall& call, u32 number, u32 to) {
  const u64 at = call.arenas[to] + GroupArena::shown(blockIdx.x, call.rank);
  const u64 source = ShownArray::of(call, call.sends[to], call.part);
  const u64 target = ShownArray::of(call, call.gathers[to], call.part >> 16);
  store_packet(at, Packet::of(source, number, call.hash));
  store_packet(at + sizeof(Packet), Packet::of(target, number, call.hash));
}
// A rank that comes late must not access the arrays of one that has given up.
__device__ inline void hide_arrays(const GroupCall& call, u32 number, u32 to) {
  store_packet(call.arenas[to] + GroupArena::shown(blockIdx.x, call.rank),
               Packet::of(0, number - 1, call.hash));
}

// What that rank shows: in_place with its place, or arena. first_flag: of its first chunk.
__device__ inline Way await_arrays(const GroupCall& call, u32 number, u32 from, u64 first_flag,
                                   Patience& patience, BlockPlaces* places) {
  const u64 at = call.arenas[call.rank] + GroupArena::shown(blockIdx.x, from);
  const Note by_arena = number | u64{call.hash} << 32;
  for (;;) {
    const Packet first = load_packet(at), second = load_packet(at + sizeof(Packet));
    if (first.is_of(number, call.hash) && second.is_of(number, call.hash)) {
      (void)acquire_packet(at);  // what its stream had stored into its arrays is there
      const ShownArray source(first.data()), target(second.data());
      if (!source.is_in(call.part) || !target.is_in(call.part >> 16)) return Way::arena;
      places->sources[from] = call.parts[from] + source.offset();
      places->targets[from] = call.parts[from] + target.offset();
      return Way::in_place;
    }
    // No acquire, which would slow each look: who goes on by the arena acquires the flag there.
    if (glance_at_note(first_flag) == by_arena) return Way::arena;
    if (!patience.goes_on(from)) return Way::none;
  }
}

// Called by all threads after release_arrays(), where this rank's arrays lie in registered memory.
// number: of this call's first chunk. first_flags: of that chunk, by rank. Sets `places` if the way
// is in_place. To be inlined: there the call lies in constant memory, elsewhere behind a pointer.
__device__ inline Way choose_way(const GroupCall& call, u32 number, u64 first_flags,
                                 Patience& patience, BlockPlaces* places) {
  const u32 other = threadIdx.x;
  const bool is_other = other < call.size && other != call.rank;
  Way way = Way::in_place;
  if (is_other) {
    show_arrays(call, number, other);
    way = await_arrays(call, number, other, first_flags + other * sizeof(u64), patience, places);
  } else if (other == call.rank) {
    places->sources[other] = call.sends[other];
    places->targets[other] = call.result;
  }
  if (!__syncthreads_and(way != Way::none)) {
    if (is_other) hide_arrays(call, number, other);
    return Way::none;
  }
  return __syncthreads_and(way == Way::in_place) ? Way::in_place : Way::arena;
}

}  // namespace zerohop::gpu
