// Values of any type of 1, 2, 4 or 8 bytes, as words of that size.
#pragma once

#include "zerohop/integers.h"

namespace zerohop::device {

template <u32 kSize>
struct WordOf;
template <>
struct WordOf<1> {
  using Type = unsigned char;
};
template <>
struct WordOf<2> {
  using Type = unsigned short;
};
template <>
struct WordOf<4> {
  using Type = u32;
};
template <>
struct WordOf<8> {
  using Type = u64;
};
template <typename T>
using Word = typename WordOf<sizeof(T)>::Type;

template <typename T>
__device__ Word<T> to_word(const T& value) {
  Word<T> word;
  memcpy(&word, &value, sizeof word);
  return word;
}
template <typename T>
__device__ T from_word(Word<T> word) {
  T value;
  memcpy(&value, &word, sizeof value);
  return value;
}

}  // namespace zerohop::device
