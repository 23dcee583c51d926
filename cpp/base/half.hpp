// float16 (IEEE 754 binary16) and bfloat16 as bits, to and from float32. Rounds to nearest, ties to
// even. Without branches, so that loops vectorize.
#pragma once

#include <bit>
#include <cstdint>

namespace zerohop {

constexpr float from_float16(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t rest = (half & 0x7fffU) << 13;
  // The exponents have different biases, 15 and 127. The product is exact.
  const std::uint32_t scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) * 0x1p112f);
  const std::uint32_t special = rest >= 0x0f800000U ? 0x7f800000U : 0;  // infinity and NaN
  return std::bit_cast<float>(scaled | special | sign);
}

constexpr std::uint16_t to_float16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t size = bits & 0x7fffffffU;
  const std::uint32_t normal = (size - 0x38000000U + 0xfffU + ((size >> 13) & 1)) >> 13;
  // The last bit of floats from 0.5 to 1 is 2**-24, as in float16 below 2**-14.
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000U;
  const std::uint32_t large =
      size > 0x7f800000U ? 0x7e00U | ((size >> 13) & 0x3ffU) : 0x7c00U;  // NaN, infinity
  const std::uint32_t finite = size < 0x38800000U ? small : normal;
  return static_cast<std::uint16_t>(sign | (size >= 0x47800000U ? large : finite));
}

constexpr float from_bfloat16(std::uint16_t half) noexcept {
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}

constexpr std::uint16_t to_bfloat16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded);
}

}  // namespace zerohop
