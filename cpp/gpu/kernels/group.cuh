// What the kernels of collectives share: waits for other ranks, which end in any case, and the
// reduction of elements.
#pragma once

#include "base/reduce_op.hpp"
#include "gpu/group_call.hpp"
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

// Shows the others which call this is, and counts it. Called by all threads.
__device__ inline u32 show(const GroupCall& call) {
  const u32 to = threadIdx.x;
  if (blockIdx.x != 0 || to >= call.size) return 0;
  const u32 number = glance(call.arenas[call.rank] + GroupArena::counts(0) + 8) + 1;
  if (to != call.rank) {
    store_packet(call.arenas[to] + GroupArena::call(call.rank),
                 Packet{number | u64{call.hash} << 32, call.code});
  }
  return number;
}
__device__ inline void leave(const GroupCall& call, u32 number) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  put_word(call.arenas[call.rank] + GroupArena::counts(0) + 8, number);
}

// --- elements ---

// `T` of complex numbers is std::complex, whose layout is two numbers.
template <typename Element, u32 kNbytes>
struct Sums {
  using Stored = typename Element::Stored;
  using Sum = typename Element::Sum;
  static constexpr u32 kCount = kNbytes / sizeof(Stored);
  Sum values[kCount];

  template <typename Bytes>
  __device__ void load(const Bytes& bytes) {
    static_assert(sizeof bytes == kNbytes, "a whole number of elements");
    Stored stored[kCount];
    memcpy(static_cast<void*>(stored), &bytes, kNbytes);
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) values[i] = Element::load(stored[i]);
  }
  template <typename Bytes>
  __device__ Bytes store() const {
    Stored stored[kCount];
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) stored[i] = Element::store(values[i]);
    Bytes bytes;
    memcpy(static_cast<void*>(&bytes), stored, kNbytes);
    return bytes;
  }
};

// Combines them with the next rank's.
template <typename Element, typename Bytes>
__device__ void combine_all(ReduceOp op, Sums<Element, sizeof(Bytes)>& sums, const Bytes& next) {
  typename Element::Stored stored[sums.kCount];
  memcpy(static_cast<void*>(stored), &next, sizeof next);
  const auto by = [&](auto combined) {
#pragma unroll
    for (u32 i = 0; i < sums.kCount; ++i) {
      sums.values[i] = combined(sums.values[i], Element::load(stored[i]));
    }
  };
#define ZEROHOP_OP(name)                                                \
  case ReduceOp::name:                                                  \
    if constexpr (has_reduction<Element>(ReduceOp::name)) {             \
      by([](auto a, auto b) { return combine<ReduceOp::name>(a, b); }); \
    }                                                                   \
    break
  switch (op) {
    case ReduceOp::none: break;
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      ZEROHOP_OP(sum);
      ZEROHOP_OP(prod);
      ZEROHOP_OP(min);
      ZEROHOP_OP(max);
      ZEROHOP_OP(band);
      ZEROHOP_OP(bor);
      ZEROHOP_OP(bxor);
      ZEROHOP_OP(land);
      ZEROHOP_OP(lor);
  }
#undef ZEROHOP_OP
}

// What loops over elements need to know of a call, in registers.
struct Reducing {
  ReduceOp op;
  u32 sources;
  double factor;

  __device__ explicit Reducing(const GroupCall& call)
      : op(static_cast<ReduceOp>(call.op)), sources(call.sources), factor(call.factor) {}
};

// Reduces the same bytes of several ranks' blocks, in the order of ranks. load(rank, bytes): false
// if they did not come.
template <typename Element, typename Bytes, typename Load>
__device__ bool reduce_bytes(const Reducing& call, Bytes& reduced, Load load) {
  using Sum = typename Element::Sum;
  const ReduceOp op = call.op;
  Sums<Element, sizeof(Bytes)> sums;
  Bytes bytes, following;
  u32 left = call.sources;  // the ranks that are still to be combined
  if (!load(static_cast<u32>(__ffs(left)) - 1, bytes)) return false;
  left &= left - 1;
  if (left != 0 && !load(static_cast<u32>(__ffs(left)) - 1, following)) return false;
  sums.load(bytes);
  if constexpr (has_reduction<Element>(ReduceOp::land)) {
    if (op == ReduceOp::land || op == ReduceOp::lor) {
#pragma unroll
      for (Sum& sum : sums.values) sum = first_of<ReduceOp::land>(sum);
    }
  }
#pragma unroll 1
  while (left != 0) {
    bytes = following;
    left &= left - 1;
    if (left != 0 && !load(static_cast<u32>(__ffs(left)) - 1, following)) return false;
    combine_all<Element>(op, sums, bytes);
  }
  if constexpr (has_reduction<Element>(ReduceOp::avg)) {
    if (op == ReduceOp::avg) {
      const auto ranks = static_cast<u32>(__popc(call.sources));
#pragma unroll
      for (Sum& sum : sums.values) sum = last_of<ReduceOp::avg>(sum, ranks, call.factor);
    } else if (op == ReduceOp::premul_sum) {
#pragma unroll
      for (Sum& sum : sums.values) sum = last_of<ReduceOp::premul_sum>(sum, 1, call.factor);
    }
  }
  reduced = sums.template store<Bytes>();
  return true;
}

// Calls call.template of<Element>() for the type.
template <typename Function>
__device__ void for_type(GroupType type, Function& function) {
  switch (type) {
    case GroupType::boolean: return function.template of<BoolElement>();
    case GroupType::int8: return function.template of<PlainElement<std::int8_t>>();
    case GroupType::int16: return function.template of<PlainElement<std::int16_t>>();
    case GroupType::int32: return function.template of<PlainElement<std::int32_t>>();
    case GroupType::int64: return function.template of<PlainElement<std::int64_t>>();
    case GroupType::uint8: return function.template of<PlainElement<std::uint8_t>>();
    case GroupType::uint16: return function.template of<PlainElement<std::uint16_t>>();
    case GroupType::uint32: return function.template of<PlainElement<std::uint32_t>>();
    case GroupType::uint64: return function.template of<PlainElement<std::uint64_t>>();
    case GroupType::float16: return function.template of<Float16Element>();
    case GroupType::bfloat16: return function.template of<Bfloat16Element>();
    case GroupType::float32: return function.template of<PlainElement<float>>();
    case GroupType::float64: return function.template of<PlainElement<double>>();
    case GroupType::complex64: return function.template of<PlainElement<std::complex<float>>>();
    case GroupType::complex128: return function.template of<PlainElement<std::complex<double>>>();
  }
}

}  // namespace zerohop::gpu
