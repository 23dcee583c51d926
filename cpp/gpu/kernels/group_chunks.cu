// A collective of blocks of any size, in chunks: each block of threads stores its chunks of the
// blocks into the arenas of the other ranks, reduces what has arrived for this one, and stores the
// result into the arenas of those that want it. See group_call.hpp.
#include "gpu/kernels/group.cuh"

namespace zerohop::gpu {

// Two chunks are on their way at a time, so that flags travel while bytes are moved: in each
// turn a block of threads gathers the results of the chunk before the last, stores the next chunk,
// and reduces the last one. The flag of a chunk says that its bytes are there, and that the results
// two chunks before have been read; the flag of a result says so of that chunk.
class ChunkCall {
 public:
  struct Places {  // by rank
    u64 sources[kGroupRanks];
    u64 targets[kGroupRanks];
  };

  // places: shared by the block of threads.
  __device__ ChunkCall(const GroupCall& call, Places* places)
      : places_(places),
        call_(call),
        arena_{call.size},
        own_(call.arenas[call.rank]),
        counts_(own_ + GroupArena::counts(blockIdx.x) + sizeof(u32)),
        first_(glance(counts_) + 1),
        broken_(glance(own_ + GroupArena::kBroken)),
        patience_(call) {}

  // Called by all threads. False: the group has failed, and the arenas of others may be gone.
  __device__ bool begin() const { return __syncthreads_and(broken_ == 0); }

  __device__ void run() {
    u64 longest = 0;
    for (u32 rank = 0; rank < call_.size; ++rank) {
      longest = call_.lengths[rank] > longest ? call_.lengths[rank] : longest;
    }
    const u64 step = gridDim.x * call_.chunk;
    const u64 begin = blockIdx.x * call_.chunk;
    const u32 count = begin < longest ? static_cast<u32>((longest - begin + step - 1) / step) : 0;
    constexpr u32 kLag = GroupArena::kTurns;
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
      if (call_.op == 0) {
        receive();
      } else if (call_.result != 0 || call_.audience != 0) {
        for_type(call_.type, *this);
      }
      // Where no result was stored, the flag says only that the chunk was read: no fence.
      signal(GroupArena::second(blockIdx.x, call_.rank), number_, call_.audience != 0);
    }
    if (threadIdx.x == 0) put_word(counts_, first_ + count - 1);
  }

  template <typename Element>
  __device__ void of() {
    reduce<Element>();
  }

 private:
  // Of the chunk that begins there, the bytes in the block for that rank.
  __device__ u32 length(u32 rank, u64 at) const {
    const u64 whole = call_.lengths[rank];
    if (at >= whole) return 0;
    return static_cast<u32>(whole - at < call_.chunk ? whole - at : call_.chunk);
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

  __device__ void receive() {
    for (u32 turn = 0; turn < call_.size; ++turn) {
      const u32 from = other(turn);
      if (!has(call_.sources, from)) continue;
      const bool is_own = from == call_.rank;
      copy(call_.receives[from] + at_,
           is_own ? call_.sends[from] + at_ : chunk(number_, from, call_.rank),
           length(call_.rank, at_));
    }
  }

  template <typename Element>
  __device__ __noinline__ void reduce() {
    using One = Bytes<sizeof(typename Element::Stored)>;
    using Many = ManyBytes<sizeof(One)>;
    const u32 all = length(call_.rank, at_);
    const bool aligned = ((call_.sends[call_.rank] | call_.result) & 15) == 0;
    const u32 most = aligned ? all / sizeof(Many) * sizeof(Many) : 0;
    reduce_by<Element, Many, 2>(0, most);
    reduce_by<Element, One, 1>(most, all);
  }

  // The bytes from `begin` to `end` of the chunk, kUnits units of a thread at a time.
  template <typename Element, typename Unit, u32 kUnits>
  __device__ void reduce_by(u32 begin, u32 end) {
    struct Units {
      Unit units[kUnits];
    };
    const Reducing<SourceRanks> reducing = reducing_of(call_);
    const u32 audience = call_.audience, step = blockDim.x * sizeof(Unit);
    const u64 result = call_.result != 0 ? call_.result + at_ : 0;
    for (u32 at = begin + threadIdx.x * sizeof(Unit); at < end; at += kUnits * step) {
      Units reduced;
      (void)reduce_bytes<Element>(reducing, reduced, [&](u32 from, Units& block) {
        const u64 source = places_->sources[from] + at;
#pragma unroll
        for (u32 i = 0; i < kUnits; ++i) {
          // A unit too far is read again from the first, and not stored.
          const u32 there = at + i * step < end ? i * step : 0;
          block.units[i] = *reinterpret_cast<const Unit*>(source + there);
        }
        return true;
      });
#pragma unroll
      for (u32 i = 0; i < kUnits; ++i) {
        const u32 there = at + i * step;
        if (there >= end) continue;
        if (result != 0) *reinterpret_cast<Unit*>(result + there) = reduced.units[i];
        for (u32 ranks = audience; ranks != 0; ranks &= ranks - 1) {
          *reinterpret_cast<Unit*>(places_->targets[__ffs(ranks) - 1] + there) = reduced.units[i];
        }
      }
    }
  }

  __device__ void gather(u32 number, u64 at) {
    for (u32 turn = 1; turn < call_.size; ++turn) {
      const u32 from = other(turn);
      if (call_.gathers[from] == 0) continue;
      copy(call_.gathers[from] + at, result(number, from, call_.rank), length(from, at));
    }
  }

  static __device__ void copy(u64 to, u64 from, u32 nbytes) {
    if (to != from) device::copy_bytes<device::Block>(to, from, nbytes);
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

  Places* const places_;
  const GroupCall& call_;
  const GroupArena arena_;
  const u64 own_;
  const u64 counts_;
  const u32 first_;  // number of this call's first chunk
  const u32 broken_;
  Patience patience_;
  u32 number_ = 0;  // of the chunk that is reduced
  u64 at_ = 0;      // where it begins in each block
};

}  // namespace zerohop::gpu

extern "C" __global__ void __launch_bounds__(zerohop::gpu::kGroupThreads, 4)
    zerohop_group_chunks(const __grid_constant__ zerohop::gpu::GroupCall call) {
  using namespace zerohop::gpu;
  __shared__ ChunkCall::Places places;
  ChunkCall mine(call, &places);
  if (!mine.begin()) return;
  const u32 number = show(call);
  mine.run();
  leave(call, number);
}
