// A collective of blocks of any size, in chunks: each block of threads stores its chunks of the
// blocks into the arenas of the other ranks, reduces what has arrived for this one, and stores the
// result into the arenas of those that want it; or, in place, it reads the blocks and stores the
// result where the arrays of the other ranks lie. See group_call.hpp.
#include "gpu/kernels/group_parts.cuh"

namespace zerohop::gpu {

// All threads of the kernel. See zerohop/team.cuh.
struct Grid {
  static __device__ u32 rank() { return blockIdx.x * blockDim.x + threadIdx.x; }
  static __device__ u32 size() { return gridDim.x * blockDim.x; }
};

// What is the same for all threads of a block.
struct ChunkPlan {
  Earlier earlier;
  u64 longest;  // bytes of the longest block
  u32 count;    // chunks of this block of threads

  static __device__ ChunkPlan of(const GroupCall& call) {
    const Earlier earlier = Earlier::of(call);
    u64 longest = 0;
#pragma unroll 1
    for (u32 rank = 0; rank < call.size; ++rank) {
      longest = call.lengths[rank] > longest ? call.lengths[rank] : longest;
    }
    const u64 step = gridDim.x * call.chunk, begin = blockIdx.x * call.chunk;
    const u64 count = begin < longest ? (longest - begin + step - 1) / step : 0;
    return {earlier, longest, static_cast<u32>(count)};
  }
};

// Two chunks are on their way at a time, so that flags travel while bytes are moved: in each
// turn a block of threads gathers the results of the chunk before the last, stores the next chunk,
// and reduces the last one. The flag of a chunk says that its bytes are there, and that the results
// two chunks before have been read; the flag of a result says so of that chunk.
class ChunkCall {
 public:
  // plan, places: shared by the block of threads.
  __device__ ChunkCall(const GroupCall& call, const ChunkPlan& plan, BlockPlaces* places)
      : places_(places),
        call_(call),
        arena_{call.size},
        own_(call.arenas[call.rank]),
        counts_(own_ + GroupArena::counts(blockIdx.x) + sizeof(u32)),
        first_(plan.earlier.chunks + 1),
        chunk_(call.chunk),
        addresses_(call.sends[call.rank] | call.result),
        patience_(call) {}

  __device__ void run(const ChunkPlan& plan) {
    Way way = Way::arena;
    if (plan.count != 0 && call_.parts[call_.rank] != 0) {
      way = choose_way(call_, first_, own_ + first_flag(first_, 0), patience_, places_);
    }
    if (way == Way::arena) through_arenas(plan.count);
    if (way == Way::in_place) in_place(plan.longest);
  }

  template <typename Element>
  __device__ void of() {
    reduce<Element>();
  }

 private:
  __device__ void through_arenas(u32 count) {
    constexpr u32 kLag = GroupArena::kTurns;
    const u64 step = gridDim.x * call_.chunk, begin = blockIdx.x * call_.chunk;
    for (u32 i = 0; i < count + (gathers() ? kLag : 1); ++i) {
      if (!await(GroupArena::second(blockIdx.x, 0), first_ + i - kLag, false)) return;
      if (i >= kLag && i - kLag < count) gather(first_ + i - kLag, begin + (i - kLag) * step);
      if (i < count) {
        send(first_ + i, begin + i * step);
        signal(first_flag(first_ + i, call_.rank), first_ + i);
      }
      if (i == 0 || i > count) continue;
      number_ = first_ + i - 1;
      at_ = begin + (i - 1) * step;
      note_places();
      if (!await(first_flag(number_, 0), number_, true)) return;
      take<device::Block>();
      // Where no result was stored, the flag says only that the chunk was read: no fence.
      signal(GroupArena::second(blockIdx.x, call_.rank), number_, call_.audience != 0);
    }
    if (threadIdx.x == 0) put_word(counts_, first_ + count - 1);
  }

  // One chunk: all of the blocks. Each byte of an array is read by one rank, and then stored by the
  // same one, so nobody waits before the end. At any time all threads of the grid access
  // neighbouring bytes: the memory of a GPU is fastest so. None returns before all have read and
  // stored: then its stream may change its array.
  __device__ void in_place(u64 longest) {
    chunk_ = longest;
    lane_ = Grid::rank();
    lanes_ = Grid::size();
#pragma unroll 1
    for (u32 rank = 0; rank < call_.size; ++rank) {
      if (has(call_.sources, rank)) addresses_ |= places_->sources[rank];
      if (has(call_.audience, rank)) addresses_ |= places_->targets[rank];
    }
    take<Grid>();
    signal(GroupArena::second(blockIdx.x, call_.rank), first_);
    if (!await(GroupArena::second(blockIdx.x, 0), first_, false)) return;
    if (threadIdx.x == 0) put_word(counts_, first_);
  }

  // A chunk of the blocks for this rank.
  template <typename Team>
  __device__ void take() {
    if (call_.op == 0) {
      receive<Team>();
    } else if (call_.result != 0 || call_.audience != 0) {
      for_type(call_.type, *this);
    }
  }

  // Of the chunk that begins there, the bytes in the block for that rank.
  __device__ u64 length(u32 rank, u64 at) const {
    const u64 whole = call_.lengths[rank];
    if (at >= whole) return 0;
    return whole - at < chunk_ ? whole - at : chunk_;
  }
  __device__ u32 other(u32 turn) const { return (call_.rank + turn) % call_.size; }
  // Addresses in the arena of rank `at`.
  __device__ u64 chunk(u32 number, u32 from, u32 at) const {
    return call_.arenas[at] + arena_.chunk(blockIdx.x, number % GroupArena::kTurns, from, at);
  }
  __device__ u64 result(u32 number, u32 from, u32 at) const {
    return call_.arenas[at] + arena_.result(blockIdx.x, number % GroupArena::kTurns, from, at);
  }
  __device__ static u64 first_flag(u32 number, u32 rank) {
    return GroupArena::first(blockIdx.x, number % GroupArena::kTurns, rank);
  }
  __device__ bool gathers() const {
    bool any = false;
#pragma unroll 1
    for (u32 rank = 0; rank < call_.size; ++rank) any = any || call_.gathers[rank] != 0;
    return any;
  }

  __device__ void send(u32 number, u64 at) {
    for (u32 turn = 1; turn < call_.size; ++turn) {
      const u32 to = other(turn);
      if (call_.sends[to] == 0) continue;
      copy(chunk(number, call_.rank, to), call_.sends[to] + at, length(to, at));
    }
  }

  // Where the reduction of this chunk finds the blocks, and stores its result. The next barrier
  // makes it known.
  __device__ void note_places() {
    const u32 each = threadIdx.x, rank = call_.rank;
    if (each >= call_.size) return;
    places_->sources[each] = each == rank ? call_.sends[rank] + at_ : chunk(number_, each, rank);
    if (each != rank) places_->targets[each] = result(number_, rank, each);
  }

  template <typename Team>
  __device__ void receive() {
    for (u32 turn = 0; turn < call_.size; ++turn) {
      const u32 from = other(turn);
      if (!has(call_.sources, from)) continue;
      copy<Team>(call_.receives[from] + at_, places_->sources[from], length(call_.rank, at_));
    }
  }

  template <typename Element>
  __device__ __noinline__ void reduce() {
    using One = Bytes<sizeof(typename Element::Stored)>;
    using Many = ManyBytes<sizeof(One)>;
    const u64 all = length(call_.rank, at_);
    const u64 most = (addresses_ & 15) == 0 ? all / sizeof(Many) * sizeof(Many) : 0;
    reduce_by<Element, Many>(0, most);
    reduce_by<Element, One>(most, all);
  }

  // The bytes from `begin` to `end` of the chunk.
  template <typename Element, typename Unit>
  __device__ void reduce_by(u64 begin, u64 end) {
    const BlockPlaces* const places = places_;
    const u32 audience = call_.audience;
    const u64 result = call_.result != 0 ? call_.result + at_ : 0;
    reduce_units<Element, Unit>(
        reducing_of(call_), begin + lane_ * sizeof(Unit), end, lanes_ * sizeof(Unit),
        [&](u32 from) { return places->sources[from]; },
        [&](u64 at, const Unit& unit) {
          if (result != 0) store_unit(result + at, unit);
          for (u32 ranks = audience; ranks != 0; ranks &= ranks - 1) {
            store_unit(places->targets[__ffs(ranks) - 1] + at, unit);
          }
        });
  }

  __device__ void gather(u32 number, u64 at) {
    for (u32 turn = 1; turn < call_.size; ++turn) {
      const u32 from = other(turn);
      if (call_.gathers[from] == 0) continue;
      copy(call_.gathers[from] + at, result(number, from, call_.rank), length(from, at));
    }
  }

  template <typename Team = device::Block>
  static __device__ void copy(u64 to, u64 from, u64 nbytes) {
    if (to != from) device::copy_bytes<Team>(to, from, nbytes);
  }

  // Tells all others, after what all threads of the block have stored: the barrier orders that
  // before the fence, and fences are cumulative.
  __device__ void signal(u64 flag, u32 number, bool fences = true) {
    __syncthreads();
    const u32 to = threadIdx.x;
    if (to >= call_.size || to == call_.rank) return;
    if (fences) fence_system();
    put_word(call_.arenas[to] + flag, Note{number | u64{call_.hash} << 32});
  }

  // Waits for the flags of all others: exact: of that chunk and of this call, or of that chunk or a
  // later one.
  __device__ bool await(u64 flags, u32 number, bool exact) {
    const u32 from = threadIdx.x;
    bool came = true;
    if (from < call_.size && from != call_.rank) {
      came = await_one(own_ + flags, from, number, exact);
    }
    return __syncthreads_and(came);
  }
  __device__ bool await_one(u64 flags, u32 from, u32 number, bool exact) {
    const Note expected = number | u64{call_.hash} << 32;
    for (;;) {
      const Note flag = acquire_note(flags + from * sizeof(u64));
      const bool reached = static_cast<std::int32_t>(static_cast<u32>(flag) - number) >= 0;
      if (exact ? flag == expected : reached) return true;
      if (!patience_.goes_on(from)) return false;
    }
  }

  BlockPlaces* const places_;
  const GroupCall& call_;
  const GroupArena arena_;
  const u64 own_;
  const u64 counts_;
  const u32 first_;  // number of this call's first chunk
  u64 chunk_;
  u64 addresses_;  // all that are not in arenas, combined: whether they are aligned
  Patience patience_;
  u32 number_ = 0;  // of the chunk that is reduced
  u64 at_ = 0;      // where it begins in each block
  // This thread, and how many there are that reduce the chunk together. Not a Team: the code of
  // all types would exist twice.
  u32 lane_ = threadIdx.x, lanes_ = blockDim.x;
};

// What a block of threads shares.
struct ChunkShared {
  ChunkPlan plan;
  BlockPlaces places;
};

// Called by all threads.
__device__ inline void run_chunks(const GroupCall& call, ChunkShared& shared) {
  release_arrays(call);  // by the first warp, while the last one makes the plan
  if (threadIdx.x == blockDim.x - 1) shared.plan = ChunkPlan::of(call);
  __syncthreads();
  const Earlier& earlier = shared.plan.earlier;
  if (earlier.broken != 0) return;  // the arenas of others may be gone
  ChunkCall mine(call, shared.plan, &shared.places);
  show(call, earlier.calls + 1);
  mine.run(shared.plan);
  leave(call, earlier.calls + 1);
}

}  // namespace zerohop::gpu

extern "C" __global__ void __launch_bounds__(zerohop::gpu::kGroupThreads, 4)
    zerohop_group_chunks(const __grid_constant__ zerohop::gpu::GroupCall call) {
  __shared__ zerohop::gpu::ChunkShared shared;
  zerohop::gpu::run_chunks(call, shared);
}
