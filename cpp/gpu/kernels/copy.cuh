// How a warp copies a piece: with the widest accesses that both of its addresses allow, and eight
// of them under way in each lane; that is what keeps an NVLink full.
#pragma once

#include "gpu/copy_piece.hpp"

namespace zerohop::gpu {

constexpr unsigned kWarp = 32;
constexpr unsigned kUnderWay = 8;

// Streaming accesses: nothing here is used twice.
template <typename T>
__device__ void copy_as(CopyPiece piece, unsigned lane) {
  const T* const from = reinterpret_cast<const T*>(piece.from);
  T* const to = reinterpret_cast<T*>(piece.to);
  const std::uint64_t count = piece.nbytes / sizeof(T);
  std::uint64_t i = lane;
  for (; i + (kUnderWay - 1) * kWarp < count; i += kUnderWay * kWarp) {
    T values[kUnderWay];
#pragma unroll
    for (unsigned k = 0; k < kUnderWay; ++k) values[k] = __ldcs(from + i + k * kWarp);
#pragma unroll
    for (unsigned k = 0; k < kUnderWay; ++k) __stcs(to + i + k * kWarp, values[k]);
  }
  for (; i < count; i += kWarp) __stcs(to + i, __ldcs(from + i));
}

// Bytes up to where T is aligned, whole Ts, and the bytes that are left.
template <typename T>
__device__ void copy_aligned(CopyPiece piece, unsigned lane) {
  const std::uint64_t ahead = (sizeof(T) - piece.to % sizeof(T)) % sizeof(T);
  const std::uint64_t head = ahead < piece.nbytes ? ahead : piece.nbytes;
  const std::uint64_t body = (piece.nbytes - head) / sizeof(T) * sizeof(T);
  const std::uint64_t tail = piece.nbytes - head - body;
  using Byte = unsigned char;
  copy_as<Byte>({piece.from, piece.to, head}, lane);
  copy_as<T>({piece.from + head, piece.to + head, body}, lane);
  copy_as<Byte>({piece.from + head + body, piece.to + head + body, tail}, lane);
}

__device__ inline void copy(CopyPiece piece, unsigned lane) {
  const std::uint64_t apart = piece.from ^ piece.to;
  if (apart % 16 == 0) return copy_aligned<uint4>(piece, lane);
  if (apart % 8 == 0) return copy_aligned<uint2>(piece, lane);
  if (apart % 4 == 0) return copy_aligned<unsigned>(piece, lane);
  if (apart % 2 == 0) return copy_aligned<unsigned short>(piece, lane);
  copy_as<unsigned char>(piece, lane);
}

}  // namespace zerohop::gpu
