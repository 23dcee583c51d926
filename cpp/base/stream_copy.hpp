// Copies past the caches, for data that is larger than they are: it would be evicted before anyone
// reads it, and a plain store first loads its line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace zerohop {

inline void stream_copy(std::byte* to, const std::byte* from, std::size_t nbytes) noexcept {
#ifdef __SSE2__
  constexpr std::size_t kWord = sizeof(__m128i);
  const std::size_t ahead = (kWord - reinterpret_cast<std::uintptr_t>(to) % kWord) % kWord;
  const std::size_t head = std::min(nbytes, ahead);
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + kWord <= nbytes; at += kWord) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
  _mm_sfence();  // before whatever tells another thread of it
  std::memcpy(to + at, from + at, nbytes - at);
#else
  std::memcpy(to, from, nbytes);
#endif
}

// past: whether to bypass the caches.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t nbytes,
                       bool past) noexcept {
  if (past) {
    stream_copy(to, from, nbytes);
  } else {
    std::memcpy(to, from, nbytes);
  }
}

}  // namespace zerohop
