// The operations of reductions, and how two elements are combined: on CPUs and on GPUs with the
// same result, bit for bit (compile without fused multiply-add).
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/half.hpp"

namespace zerohop {

enum class ReduceOp : std::uint8_t {
  none,
  sum,
  prod,
  min,         // NaN if any is NaN
  max,         // likewise
  avg,         // the sum, divided by the number of ranks
  premul_sum,  // the sum, times a factor
  band,        // bits
  bor,
  bxor,
  land,  // whether all are not 0
  lor,   // whether any is not 0
};
inline constexpr std::array<std::string_view, 12> kReduceOpNames{
    "none", "sum", "prod", "min", "max", "avg", "premul_sum", "band", "bor", "bxor", "land", "lor"};

// How elements of a type are kept, and accumulated.
template <typename Kept>
struct PlainElement {
  using Stored = Kept;
  using Sum = Kept;
  static constexpr Sum load(Stored stored) noexcept { return stored; }
  static constexpr Stored store(Sum sum) noexcept { return sum; }
};

struct Float16Element {
  using Stored = std::uint16_t;
  using Sum = float;
  static constexpr Sum load(Stored stored) noexcept { return from_float16(stored); }
  static constexpr Stored store(Sum sum) noexcept { return to_float16(sum); }
};

struct Bfloat16Element {
  using Stored = std::uint16_t;
  using Sum = float;
  static constexpr Sum load(Stored stored) noexcept { return from_bfloat16(stored); }
  static constexpr Stored store(Sum sum) noexcept { return to_bfloat16(sum); }
};

struct BoolElement {
  using Stored = std::uint8_t;
  using Sum = bool;
  static constexpr Sum load(Stored stored) noexcept { return stored != 0; }
  static constexpr Stored store(Sum sum) noexcept { return sum ? 1 : 0; }
};

template <typename Sum>
inline constexpr bool is_complex_sum = !std::is_arithmetic_v<Sum>;

// Whether the operation exists for the element type.
template <typename Element>
constexpr bool has_reduction(ReduceOp op) noexcept {
  using Sum = typename Element::Sum;
  switch (op) {
    case ReduceOp::none: return false;
    case ReduceOp::sum:
    case ReduceOp::prod: return true;
    case ReduceOp::min:
    case ReduceOp::max: return !is_complex_sum<Sum>;
    case ReduceOp::avg:
    case ReduceOp::premul_sum: return !std::is_integral_v<Sum>;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor: return std::is_integral_v<Sum>;
    case ReduceOp::land:
    case ReduceOp::lor: return !is_complex_sum<Sum>;
  }
  return false;
}

// The first element, before any other is combined with it.
template <ReduceOp op, typename Sum>
constexpr Sum first_of(Sum a) noexcept {
  constexpr bool is_logical = op == ReduceOp::land || op == ReduceOp::lor;
  if constexpr (is_logical && !std::is_same_v<Sum, bool>) return static_cast<Sum>(a != Sum{0});
  return a;
}

template <ReduceOp op, typename Sum>
constexpr Sum combine(Sum a, Sum b) noexcept {
  if constexpr (std::is_same_v<Sum, bool>) {
    if constexpr (op == ReduceOp::bxor) return a != b;
    if constexpr (op == ReduceOp::prod || op == ReduceOp::min || op == ReduceOp::band ||
                  op == ReduceOp::land) {
      return a && b;
    }
    return a || b;
  } else if constexpr (op == ReduceOp::land) {
    return static_cast<Sum>(a != Sum{0} && b != Sum{0});
  } else if constexpr (op == ReduceOp::lor) {
    return static_cast<Sum>(a != Sum{0} || b != Sum{0});
  } else if constexpr (is_complex_sum<Sum>) {
    if constexpr (op == ReduceOp::prod) {  // without the special cases of std::complex
      return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
    }
    return {a.real() + b.real(), a.imag() + b.imag()};
  } else if constexpr (op == ReduceOp::min) {
    return b < a || b != b ? b : a;
  } else if constexpr (op == ReduceOp::max) {
    return b > a || b != b ? b : a;
  } else if constexpr (std::is_integral_v<Sum>) {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    if constexpr (op == ReduceOp::prod) return static_cast<Sum>(x * y);
    if constexpr (op == ReduceOp::band) return static_cast<Sum>(x & y);
    if constexpr (op == ReduceOp::bor) return static_cast<Sum>(x | y);
    if constexpr (op == ReduceOp::bxor) return static_cast<Sum>(x ^ y);
    return static_cast<Sum>(x + y);
  } else {
    if constexpr (op == ReduceOp::prod) return a * b;
    return a + b;
  }
}

// What is done once all are combined. ranks: how many.
template <ReduceOp op, typename Sum>
constexpr Sum last_of(Sum sum, unsigned ranks, double factor) noexcept {
  using std::is_integral_v;
  if constexpr (op == ReduceOp::avg && !is_integral_v<Sum>) {
    const auto count = static_cast<float>(ranks);
    if constexpr (is_complex_sum<Sum>)
      return {sum.real() / count, sum.imag() / count};
    else
      return sum / count;
  } else if constexpr (op == ReduceOp::premul_sum && !is_integral_v<Sum>) {
    if constexpr (is_complex_sum<Sum>) {
      const auto by = static_cast<typename Sum::value_type>(factor);
      return {sum.real() * by, sum.imag() * by};
    } else {
      return sum * static_cast<Sum>(factor);
    }
  } else {
    return sum;
  }
}

}  // namespace zerohop
