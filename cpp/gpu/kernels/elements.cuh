// How kernels reduce elements: with the same results as a CPU, bit for bit.
#pragma once

#include <type_traits>

#include "base/reduce_op.hpp"
#include "gpu/group_call.hpp"
#include "gpu/kernels/words.cuh"

namespace zerohop::gpu {

// Integers, or more, of so many bytes.
template <u32 kNbytes>
using Bytes = std::conditional_t<
    kNbytes == 1, unsigned char,
    std::conditional_t<
        kNbytes == 2, unsigned short,
        std::conditional_t<kNbytes == 4, u32, std::conditional_t<kNbytes == 8, u64, uint4>>>>;
// What a thread takes at a time of aligned arrays. Fewer of the smallest elements: their code would
// be large.
template <u32 kNbytes>
using ManyBytes = std::conditional_t<kNbytes == 1, u32, uint4>;

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

// Whose blocks are combined, in their order: of the ranks of a mask, or all inputs.
struct SourceRanks {
  u32 left;

  __device__ bool any() const { return left != 0; }
  __device__ u32 first() const { return static_cast<u32>(__ffs(left)) - 1; }
  __device__ void drop() { left &= left - 1; }
  __device__ u32 for_avg() const { return static_cast<u32>(__popc(left)); }
};
struct SourceInputs {
  u32 next, count, ranks;

  __device__ bool any() const { return next < count; }
  __device__ u32 first() const { return next; }
  __device__ void drop() { ++next; }
  __device__ u32 for_avg() const { return ranks; }
};

template <typename Unit>
__device__ void store_unit(u64 at, const Unit& unit) {
  if constexpr (std::is_same_v<Unit, uint4>) {
    store_sixteen(at, unit);
  } else {
    *reinterpret_cast<Unit*>(at) = unit;
  }
}

// What loops over elements need to know of a call, in registers.
template <typename Sources>
struct Reducing {
  ReduceOp op;
  Sources sources;
  double factor;
};

// Reduces the same bytes of several blocks, in order. load(source, bytes): false if they did not
// come.
template <typename Element, typename Bytes, typename Sources, typename Load>
__device__ bool reduce_bytes(const Reducing<Sources>& call, Bytes& reduced, Load load) {
  using Sum = typename Element::Sum;
  const ReduceOp op = call.op;
  Sums<Element, sizeof(Bytes)> sums;
  Bytes bytes;
  Bytes following{};  // without a value, the compiler keeps that of the last call in local memory
  Sources left = call.sources;  // still to be combined
  if (!load(left.first(), bytes)) return false;
  left.drop();
  if (left.any() && !load(left.first(), following)) return false;
  sums.load(bytes);
  if constexpr (has_reduction<Element>(ReduceOp::land)) {
    if (op == ReduceOp::land || op == ReduceOp::lor) {
#pragma unroll
      for (Sum& sum : sums.values) sum = first_of<ReduceOp::land>(sum);
    }
  }
#pragma unroll 1
  while (left.any()) {
    bytes = following;
    left.drop();
    if (left.any() && !load(left.first(), following)) return false;
    combine_all<Element>(op, sums, bytes);
  }
  if constexpr (has_reduction<Element>(ReduceOp::avg)) {
    if (op == ReduceOp::avg) {
      const u32 ranks = call.sources.for_avg();
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

// A thread's share of such blocks: a unit at a time, `step` bytes apart, from `begin` on, as far as
// they lie below `end`. source(source): its address; store(offset, unit).
template <typename Element, typename Unit, typename Reducing, typename Source, typename Store>
__device__ void reduce_units(const Reducing& reducing, u64 begin, u64 end, u64 step, Source source,
                             Store store) {
#pragma unroll 1
  for (u64 at = begin; at < end; at += step) {
    Unit reduced;
    (void)reduce_bytes<Element>(reducing, reduced, [&](u32 from, Unit& unit) {
      unit = *reinterpret_cast<const Unit*>(source(from) + at);
      return true;
    });
    store(at, reduced);
  }
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
