// How a team copies bytes: with the widest accesses that both addresses allow, and several of them
// in flight per thread, which keeps an NVLink full. Small copies take few instructions, because
// a thread issues only one in two or three nanoseconds. Plain C++ for tests, which call it
// for one thread of a team after the other.
#pragma once

#include "zerohop/integers.h"

namespace zerohop::device {

#ifdef __CUDACC__
#define ZEROHOP_UNROLL _Pragma("unroll")
using Sixteen = uint4;
using Eight = uint2;
// No streaming hint (.cs): the data that the kernel has just written is in the caches, and
// puts of 8 bytes would take twice as long.
template <typename T>
__device__ T load_at(const T* at) {
  return *at;
}
template <typename T>
__device__ void store_at(T* at, T value) {
  *at = value;
}
#else
#define ZEROHOP_UNROLL
struct alignas(16) Sixteen {
  u32 words[4];
};
struct alignas(8) Eight {
  u32 words[2];
};
template <typename T>
T load_at(const T* at) {
  if (reinterpret_cast<u64>(at) % sizeof(T) != 0) __builtin_trap();  // like a GPU
  T value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}
template <typename T>
void store_at(T* at, T value) {
  if (reinterpret_cast<u64>(at) % sizeof(T) != 0) __builtin_trap();
  __builtin_memcpy(at, &value, sizeof value);
}
#endif

// Copies `count` elements, at most kMost per thread; a thread's first ones are `target` and `source`.
template <u32 kMost, typename Team, typename T>
ZEROHOP_GPU void copy_few(T* target, const T* source, u32 count) {
  const u32 size = Team::size();
  const u32 rank = Team::rank();
  T values[kMost] = {};  // without initialisation compilers keep values of the last call
  ZEROHOP_UNROLL
  for (u32 k = 0; k < kMost; ++k) {
    if (rank + k * size < count) values[k] = load_at(source + k * size);
  }
  ZEROHOP_UNROLL
  for (u32 k = 0; k < kMost; ++k) {
    if (rank + k * size < count) store_at(target + k * size, values[k]);
  }
}

// Copies kCount elements per thread.
template <u32 kCount, typename Team, typename T>
ZEROHOP_GPU void copy_round(T*& target, const T*& source) {
  const u32 size = Team::size();
  T values[kCount];
  ZEROHOP_UNROLL
  for (u32 k = 0; k < kCount; ++k) values[k] = load_at(source + k * size);
  ZEROHOP_UNROLL
  for (u32 k = 0; k < kCount; ++k) store_at(target + k * size, values[k]);
  target += kCount * size;
  source += kCount * size;
}

// Copies `count` elements of T; both addresses are aligned for it.
template <typename T, typename Team>
ZEROHOP_GPU void copy_as(u64 to, u64 from, u64 count) {
  const u32 size = Team::size();
  T* target = reinterpret_cast<T*>(to) + Team::rank();
  const T* source = reinterpret_cast<const T*>(from) + Team::rank();
  for (; count >= 4 * size; count -= 4 * size) copy_round<4, Team>(target, source);
  const auto rest = static_cast<u32>(count);
  if (rest > size) {
    copy_few<4, Team>(target, source, rest);
  } else if (Team::rank() < rest) {
    store_at(target, load_at(source));
  }
}

// Copies and returns true if both addresses and the size are multiples of sizeof(T), and one access
// per thread is enough.
template <typename T, typename Team>
ZEROHOP_GPU bool copy_at_once(u64 to, u64 from, u64 nbytes) {
  if ((to | from | nbytes) % sizeof(T) != 0 || nbytes > sizeof(T) * Team::size()) return false;
  const u32 rank = Team::rank();
  if (rank * sizeof(T) >= nbytes) return true;
  store_at(reinterpret_cast<T*>(to) + rank, load_at(reinterpret_cast<const T*>(from) + rank));
  return true;
}

// Copies the bytes up to the alignment of the widest possible accesses, then those, then the rest. Not
// inlined, so that its registers do not burden the kernel.
template <typename Team>
ZEROHOP_CALLED void copy_long(u64 to, u64 from, u64 nbytes) {
  using Byte = unsigned char;
  const u64 differ = (to ^ from) | sizeof(Sixteen);
  const u64 width = differ & (~differ + 1);  // the lowest bit
  const u64 ahead = (~to + 1) & (width - 1);
  const u64 head = ahead < nbytes ? ahead : nbytes;
  const u64 body = width == 1 ? 0 : (nbytes - head) & ~(width - 1);
  if (head != 0) copy_as<Byte, Team>(to, from, head);
  to += head;
  from += head;
  if (width == 16) {
    copy_as<Sixteen, Team>(to, from, body / 16);
  } else if (width == 8) {
    copy_as<Eight, Team>(to, from, body / 8);
  } else if (width == 4) {
    copy_as<u32, Team>(to, from, body / 4);
  } else if (width == 2) {
    copy_as<unsigned short, Team>(to, from, body / 2);
  }
  const u64 rest = nbytes - head - body;
  if (rest != 0) copy_as<Byte, Team>(to + body, from + body, rest);
}

template <typename Team>
ZEROHOP_GPU void copy_bytes(u64 to, u64 from, u64 nbytes) {
  if ((to | from | nbytes) % sizeof(Sixteen) == 0) {
    return copy_as<Sixteen, Team>(to, from, nbytes / sizeof(Sixteen));
  }
  if (copy_at_once<Eight, Team>(to, from, nbytes)) return;
  if (copy_at_once<u32, Team>(to, from, nbytes)) return;
  copy_long<Team>(to, from, nbytes);
}

}  // namespace zerohop::device

#undef ZEROHOP_UNROLL
