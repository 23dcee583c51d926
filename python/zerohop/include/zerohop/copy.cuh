// How a team copies bytes: with the widest accesses that both addresses allow, and several of them
// under way in each thread; that is what keeps an NVLink full.
#pragma once

#include "zerohop/team.cuh"

namespace zerohop::device {

constexpr u32 kUnderWay = 8;

// Streaming accesses: nothing here is used twice.
template <typename T, typename Team>
__device__ void copy_as(u64 to, u64 from, u64 nbytes) {
  const T* const source = reinterpret_cast<const T*>(from);
  T* const target = reinterpret_cast<T*>(to);
  const u64 count = nbytes / sizeof(T);
  const u32 size = Team::size();
  u64 i = Team::rank();
  for (; i + (kUnderWay - 1) * size < count; i += kUnderWay * size) {
    T values[kUnderWay];
#pragma unroll
    for (u32 k = 0; k < kUnderWay; ++k) values[k] = __ldcs(source + i + k * size);
#pragma unroll
    for (u32 k = 0; k < kUnderWay; ++k) __stcs(target + i + k * size, values[k]);
  }
  if (i >= count) return;
  T values[kUnderWay];  // the rest, all at once as well
#pragma unroll
  for (u32 k = 0; k < kUnderWay; ++k) {
    if (i + k * size < count) values[k] = __ldcs(source + i + k * size);
  }
#pragma unroll
  for (u32 k = 0; k < kUnderWay; ++k) {
    if (i + k * size < count) __stcs(target + i + k * size, values[k]);
  }
}

// Bytes up to where T is aligned, whole Ts, and the bytes that are left.
template <typename T, typename Team>
__device__ void copy_aligned(u64 to, u64 from, u64 nbytes) {
  const u64 ahead = (sizeof(T) - to % sizeof(T)) % sizeof(T);
  const u64 head = ahead < nbytes ? ahead : nbytes;
  const u64 body = (nbytes - head) / sizeof(T) * sizeof(T);
  using Byte = unsigned char;
  copy_as<Byte, Team>(to, from, head);
  copy_as<T, Team>(to + head, from + head, body);
  copy_as<Byte, Team>(to + head + body, from + head + body, nbytes - head - body);
}

template <typename Team>
__device__ inline void copy_bytes(u64 to, u64 from, u64 nbytes) {
  const u64 apart = from ^ to;
  if (apart % 16 == 0) return copy_aligned<uint4, Team>(to, from, nbytes);
  if (apart % 8 == 0) return copy_aligned<uint2, Team>(to, from, nbytes);
  if (apart % 4 == 0) return copy_aligned<unsigned, Team>(to, from, nbytes);
  if (apart % 2 == 0) return copy_aligned<unsigned short, Team>(to, from, nbytes);
  copy_as<unsigned char, Team>(to, from, nbytes);
}

}  // namespace zerohop::device
