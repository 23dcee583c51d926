// A collective of blocks of any size, in chunks: each block of threads stores its chunks of the
// blocks into the arenas of the other ranks, reduces what has arrived for this one, and stores the
// result into the arenas of those that want it. See group_call.hpp.
#include "gpu/kernels/group.cuh"

namespace zerohop::gpu {

// As many bytes as `left`, at most those of T.
template <typename T>
__device__ T load_some(u64 from, u32 left) {
  if (from % sizeof(T) == 0 && left >= sizeof(T)) return *reinterpret_cast<const T*>(from);
  T value = {};
  auto* bytes = reinterpret_cast<unsigned char*>(&value);
#pragma unroll
  for (u32 i = 0; i < sizeof(T); ++i) {
    if (i < left) bytes[i] = reinterpret_cast<const unsigned char*>(from)[i];
  }
  return value;
}
template <typename T>
__device__ void store_some(u64 to, const T& value, u32 left) {
  if (to % sizeof(T) == 0 && left >= sizeof(T)) {
    *reinterpret_cast<T*>(to) = value;
    return;
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
#pragma unroll
  for (u32 i = 0; i < sizeof(T); ++i) {
    if (i < left) reinterpret_cast<unsigned char*>(to)[i] = bytes[i];
  }
}

// Up to three chunks are on their way at a time, so that flags travel while bytes are moved: in each
// turn a block of threads gathers the results of the chunk before the last two, stores the next
// chunk, and reduces the last one. The flag of a chunk says that its bytes are there, and that the
// results three chunks before have been read; that of a result says so of the chunk.
class ChunkCall {
 public:
  __device__ explicit ChunkCall(const GroupCall& call)
      : call_(call),
        arena_{call.size},
        own_(call.arenas[call.rank]),
        counts_(own_ + GroupArena::counts(blockIdx.x) + sizeof(u32)),
        first_(glance(counts_) + 1),
        patience_(call) {}

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
        signal(GroupArena::first(blockIdx.x, call_.rank), first_ + i);
      }
      if (i == 0 || i > count) continue;
      number_ = first_ + i - 1;
      at_ = begin + (i - 1) * step;
      if (!await(GroupArena::first(blockIdx.x, 0), number_, true)) return;
      if (call_.op == 0) {
        receive();
      } else if (call_.result != 0 || call_.audience != 0) {
        for_type(call_.type, *this);
      }
      signal(GroupArena::second(blockIdx.x, call_.rank), number_);
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
  __device__ u64 chunk(u32 number, u32 from) const {
    return arena_.chunk(blockIdx.x, number % GroupArena::kTurns, from);
  }
  __device__ u64 result(u32 number, u32 from) const {
    return arena_.result(blockIdx.x, number % GroupArena::kTurns, from);
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
      copy(call_.arenas[to] + chunk(number, call_.rank), call_.sends[to] + at, length(to, at));
    }
  }

  __device__ void receive() {
    for (u32 turn = 0; turn < call_.size; ++turn) {
      const u32 from = other(turn);
      if (!has(call_.sources, from)) continue;
      const bool is_own = from == call_.rank;
      copy(call_.receives[from] + at_,
           is_own ? call_.sends[from] + at_ : own_ + chunk(number_, from),
           length(call_.rank, at_));
    }
  }

  template <typename Element>
  __device__ __noinline__ void reduce() {
    const u32 all = length(call_.rank, at_);
    const u64 own_block = call_.sends[call_.rank] + at_;
    // A thread takes fewer of the smallest elements at a time: their code would be large.
    using Some = std::conditional_t<sizeof(typename Element::Stored) == 1, u32, uint4>;
    for (u32 at = threadIdx.x * sizeof(Some); at < all; at += blockDim.x * sizeof(Some)) {
      const u32 left = all - at;
      Some reduced;
      (void)reduce_bytes<Element>(call_, reduced, [&](u32 rank, Some& block) {
        block = rank == call_.rank
                    ? load_some<Some>(own_block + at, left)
                    : *reinterpret_cast<const Some*>(own_ + chunk(number_, rank) + at);
        return true;
      });
      if (call_.result != 0) store_some(call_.result + at_ + at, reduced, left);
      for (u32 ranks = call_.audience; ranks != 0; ranks &= ranks - 1) {
        const u64 to = call_.arenas[__ffs(ranks) - 1] + result(number_, call_.rank);
        *reinterpret_cast<Some*>(to + at) = reduced;  // the arena has room for whole ones
      }
    }
  }

  __device__ void gather(u32 number, u64 at) {
    for (u32 turn = 1; turn < call_.size; ++turn) {
      const u32 from = other(turn);
      if (call_.gathers[from] == 0) continue;
      copy(call_.gathers[from] + at, own_ + result(number, from), length(from, at));
    }
  }

  static __device__ void copy(u64 to, u64 from, u32 nbytes) {
    if (to != from) device::copy_bytes<device::Block>(to, from, nbytes);
  }

  // Tells all others, after what all threads of the block have stored: the barrier orders that
  // before the fence, and fences are cumulative.
  __device__ void signal(u64 flag, u32 number) {
    __syncthreads();
    const u32 to = threadIdx.x;
    if (to >= call_.size || to == call_.rank) return;
    fence_system();
    put_word(call_.arenas[to] + flag, Note{number | u64{call_.hash} << 32});
  }

  // Waits for the flags of all others. compares: whether they are of the same call.
  __device__ bool await(u64 flags, u32 number, bool compares) {
    const u32 from = threadIdx.x;
    bool came = true;
    if (from < call_.size && from != call_.rank) {
      came = await_one(own_ + flags, from, number, compares);
    }
    return __syncthreads_and(came);
  }
  __device__ bool await_one(u64 flags, u32 from, u32 number, bool compares) {
    for (;;) {
      const Note flag = acquire_note(flags + from * sizeof(u64));
      const auto ahead = static_cast<std::int32_t>(static_cast<u32>(flag) - number);
      if (ahead > 0 || (ahead == 0 && (!compares || flag >> 32 == call_.hash))) return true;
      if (ahead == 0) {
        patience_.differs(from);
        return false;
      }
      if (!patience_.goes_on(from)) return false;
    }
  }

  const GroupCall& call_;
  const GroupArena arena_;
  const u64 own_;
  const u64 counts_;
  const u32 first_;  // number of this call's first chunk
  Patience patience_;
  u32 number_ = 0;  // of the chunk that is reduced
  u64 at_ = 0;      // where it begins in each block
};

}  // namespace zerohop::gpu

extern "C" __global__ void __launch_bounds__(zerohop::gpu::kGroupThreads, 2)
    zerohop_group_chunks(const __grid_constant__ zerohop::gpu::GroupCall call) {
  using namespace zerohop::gpu;
  begin();
  ChunkCall mine(call);
  const u32 number = show(call);
  mine.run();
  leave(call, number);
}
