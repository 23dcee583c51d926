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

class ChunkCall {
 public:
  __device__ explicit ChunkCall(const GroupCall& call)
      : call_(call),
        arena_{call.size},
        own_(call.arenas[call.rank]),
        counts_(own_ + GroupArena::counts(blockIdx.x) + sizeof(u32)),
        number_(glance(counts_)),
        patience_(call) {}

  __device__ void run() {
    u64 longest = 0;
    for (u32 rank = 0; rank < call_.size; ++rank) {
      longest = call_.lengths[rank] > longest ? call_.lengths[rank] : longest;
    }
    for (at_ = blockIdx.x * call_.chunk; at_ < longest; at_ += gridDim.x * call_.chunk) {
      if (!one()) return;
    }
    if (threadIdx.x == 0) put_word(counts_, number_);
  }

  template <typename Element>
  __device__ void of() {
    reduce<Element>();
  }

 private:
  // Of the chunk, the bytes in the block for that rank.
  __device__ u32 length(u32 rank) const {
    const u64 whole = call_.lengths[rank];
    if (at_ >= whole) return 0;
    return static_cast<u32>(whole - at_ < call_.chunk ? whole - at_ : call_.chunk);
  }
  __device__ u32 other(u32 turn) const { return (call_.rank + turn) % call_.size; }

  __device__ bool one() {
    // The others have read what this rank stored before.
    if (!await(GroupArena::second(blockIdx.x, 0), false)) return false;
    ++number_;
    for (u32 turn = 1; turn < call_.size; ++turn) {
      const u32 to = other(turn);
      if (call_.sends[to] == 0) continue;
      copy(call_.arenas[to] + arena_.chunk(blockIdx.x, call_.rank), call_.sends[to] + at_,
           length(to));
    }
    signal(GroupArena::first(blockIdx.x, call_.rank));
    if (!await(GroupArena::first(blockIdx.x, 0), true)) return false;
    if (call_.op == 0) {
      receive();
    } else if (call_.result != 0 || call_.audience != 0) {
      for_type(call_.type, *this);
    }
    signal(GroupArena::second(blockIdx.x, call_.rank));
    return gather();
  }

  __device__ void receive() {
    for (u32 turn = 0; turn < call_.size; ++turn) {
      const u32 from = other(turn);
      if (!has(call_.sources, from)) continue;
      const bool is_own = from == call_.rank;
      copy(call_.receives[from] + at_,
           is_own ? call_.sends[from] + at_ : own_ + arena_.chunk(blockIdx.x, from),
           length(call_.rank));
    }
  }

  template <typename Element>
  __device__ __noinline__ void reduce() {
    const u32 all = length(call_.rank);
    const u64 own_block = call_.sends[call_.rank] + at_;
    const u64 result = call_.result + at_;
    // A thread takes fewer of the smallest elements at a time: their code would be large.
    using Some = std::conditional_t<sizeof(typename Element::Stored) == 1, u32, uint4>;
    for (u32 at = threadIdx.x * sizeof(Some); at < all; at += blockDim.x * sizeof(Some)) {
      const u32 left = all - at;
      Some reduced;
      (void)reduce_bytes<Element>(call_, reduced, [&](u32 rank, Some& block) {
        block = rank == call_.rank
                    ? load_some<Some>(own_block + at, left)
                    : *reinterpret_cast<const Some*>(own_ + arena_.chunk(blockIdx.x, rank) + at);
        return true;
      });
      if (call_.result != 0) store_some(result + at, reduced, left);
      for (u32 ranks = call_.audience; ranks != 0; ranks &= ranks - 1) {
        const u64 to = call_.arenas[__ffs(ranks) - 1] + arena_.result(blockIdx.x, call_.rank);
        *reinterpret_cast<Some*>(to + at) = reduced;  // the arena has room for whole ones
      }
    }
  }

  __device__ bool gather() {
    bool any = false;
    for (u32 rank = 0; rank < call_.size; ++rank) any = any || call_.gathers[rank] != 0;
    if (!any) return true;
    if (!await(GroupArena::second(blockIdx.x, 0), false)) return false;
    for (u32 turn = 1; turn < call_.size; ++turn) {
      const u32 from = other(turn);
      if (call_.gathers[from] == 0) continue;
      copy(call_.gathers[from] + at_, own_ + arena_.result(blockIdx.x, from), length(from));
    }
    return true;
  }

  static __device__ void copy(u64 to, u64 from, u32 nbytes) {
    if (to != from) device::copy_bytes<device::Block>(to, from, nbytes);
  }

  // Tells all others, after what all threads of the block have stored: the barrier orders that
  // before the fence, and fences are cumulative.
  __device__ void signal(u64 flag) {
    __syncthreads();
    const u32 to = threadIdx.x;
    if (to >= call_.size || to == call_.rank) return;
    fence_system();
    put_word(call_.arenas[to] + flag, Note{number_ | u64{call_.hash} << 32});
  }

  // Waits for the flags of all others. compares: whether they are of the same call.
  __device__ bool await(u64 flags, bool compares) {
    const u32 from = threadIdx.x;
    bool came = true;
    if (from < call_.size && from != call_.rank) came = await_one(own_ + flags, from, compares);
    return __syncthreads_and(came);
  }
  __device__ bool await_one(u64 flags, u32 from, bool compares) {
    for (;;) {
      const Note flag = acquire_note(flags + from * sizeof(u64));
      if (static_cast<std::int32_t>(static_cast<u32>(flag) - number_) >= 0) {
        if (!compares || flag >> 32 == call_.hash) return true;
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
  u32 number_;  // of the chunk
  u64 at_ = 0;  // where it begins in each block
  Patience patience_;
};

}  // namespace zerohop::gpu

extern "C" __global__ void __launch_bounds__(zerohop::gpu::kGroupThreads, 2)
    zerohop_group_chunks(const __grid_constant__ zerohop::gpu::GroupCall call) {
  using namespace zerohop::gpu;
  begin();
  if (!enter(call)) return;
  ChunkCall(call).run();
  leave(call);
}
