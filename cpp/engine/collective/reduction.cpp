#include "engine/collective/reduction.hpp"

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "base/half.hpp"

namespace zerohop::engine::collective {
namespace {

// The iterations of the next loop do not depend on each other.
#ifdef __clang__
#define ZEROHOP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define ZEROHOP_INDEPENDENT _Pragma("GCC ivdep")
#endif

constexpr std::size_t kBlock = 512;  // elements, accumulated in the first-level cache

// How elements of a type are kept, and accumulated.
template <typename Kept>
struct Plain {
  using Stored = Kept;
  using Sum = Kept;
  static Sum load(Stored stored) noexcept { return stored; }
  static Stored store(Sum sum) noexcept { return sum; }
};

struct Float16 {
  using Stored = std::uint16_t;
  using Sum = float;
  static Sum load(Stored stored) noexcept { return from_float16(stored); }
  static Stored store(Sum sum) noexcept { return to_float16(sum); }
};

struct Bfloat16 {
  using Stored = std::uint16_t;
  using Sum = float;
  static Sum load(Stored stored) noexcept { return from_bfloat16(stored); }
  static Stored store(Sum sum) noexcept { return to_bfloat16(sum); }
};

struct Bool {
  using Stored = std::uint8_t;
  using Sum = bool;
  static Sum load(Stored stored) noexcept { return stored != 0; }
  static Stored store(Sum sum) noexcept { return sum ? 1 : 0; }
};

template <typename Sum>
inline constexpr bool is_complex = !std::is_arithmetic_v<Sum>;

template <Op op, typename Sum>
Sum combine(Sum a, Sum b) noexcept {
  if constexpr (std::is_same_v<Sum, bool>) {
    if constexpr (op == Op::bxor) return a != b;
    if constexpr (op == Op::prod || op == Op::min || op == Op::band || op == Op::land)
      return a && b;
    return a || b;
  } else if constexpr (op == Op::land) {
    return static_cast<Sum>(a != Sum{0} && b != Sum{0});
  } else if constexpr (op == Op::lor) {
    return static_cast<Sum>(a != Sum{0} || b != Sum{0});
  } else if constexpr (is_complex<Sum>) {
    if constexpr (op == Op::prod) {  // without the special cases of std::complex
      return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
    }
    return a + b;
  } else if constexpr (op == Op::min) {
    return b < a || b != b ? b : a;
  } else if constexpr (op == Op::max) {
    return b > a || b != b ? b : a;
  } else if constexpr (std::is_integral_v<Sum>) {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    if constexpr (op == Op::prod) return static_cast<Sum>(x * y);
    if constexpr (op == Op::band) return static_cast<Sum>(x & y);
    if constexpr (op == Op::bor) return static_cast<Sum>(x | y);
    if constexpr (op == Op::bxor) return static_cast<Sum>(x ^ y);
    return static_cast<Sum>(x + y);
  } else {
    if constexpr (op == Op::prod) return a * b;
    return a + b;
  }
}

template <typename Element>
typename Element::Sum load_at(const std::byte* from, std::uint64_t i) noexcept {
  typename Element::Stored stored;  // the array may not be aligned
  std::memcpy(&stored, from + i * sizeof(stored), sizeof(stored));
  return Element::load(stored);
}

// A sum as a term of the next one, and the result of all.
template <Op op, typename Sum>
Sum first(Sum sum) noexcept {
  if constexpr (!std::is_same_v<Sum, bool> && (op == Op::land || op == Op::lor)) {
    return static_cast<Sum>(sum != Sum{0});
  }
  return sum;
}

template <Op op, typename Sum>
Sum last(Sum sum, [[maybe_unused]] float ranks, [[maybe_unused]] Sum factor) noexcept {
  if constexpr (op == Op::avg) sum /= ranks;
  if constexpr (op == Op::premul_sum) sum *= factor;
  return sum;
}

template <typename Element, Op op>
[[gnu::always_inline]] inline void reduce_any(const Reduction& reduction, std::byte* out,
                                              std::span<const std::byte* const> in,
                                              std::uint64_t count) {
  using Stored = typename Element::Stored;
  using Sum = typename Element::Sum;
  const auto ranks = static_cast<float>(in.size());
  const Sum factor(reduction.factor);
  const auto store = [&](std::byte* to, std::uint64_t i, Sum sum) {
    const Stored stored = Element::store(last<op>(sum, ranks, factor));
    std::memcpy(to + i * sizeof(stored), &stored, sizeof(stored));
  };
  if (!std::is_same_v<Element, Float16> && in.size() == 2) {  // needs no sums in memory
    const std::byte *const one = in[0], *const other = in[1];
    ZEROHOP_INDEPENDENT  // out is one of the two, or apart from them
        for (std::uint64_t i = 0; i < count; ++i) {
      store(out, i, combine<op>(first<op>(load_at<Element>(one, i)), load_at<Element>(other, i)));
    }
    return;
  }
  Sum sums[kBlock];
  for (std::uint64_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min<std::uint64_t>(kBlock, count - begin);
    const auto at = [&](std::size_t number) { return in[number] + begin * sizeof(Stored); };
    const std::byte* const one = at(0);
    for (std::size_t i = 0; i < length; ++i) sums[i] = first<op>(load_at<Element>(one, i));
    for (std::size_t number = 1; number < in.size(); ++number) {
      // Keeps GCC from interleaving two passes, which are then no longer vectorized.
      std::atomic_signal_fence(std::memory_order_seq_cst);
      const std::byte* const next = at(number);
      for (std::size_t i = 0; i < length; ++i) {
        sums[i] = combine<op>(sums[i], load_at<Element>(next, i));
      }
    }
    std::byte* const to = out + begin * sizeof(Stored);
    for (std::size_t i = 0; i < length; ++i) store(to, i, sums[i]);
  }
}

#ifdef __x86_64__
// Without the fused operations of wider machines, which round differently.
template <typename Element, Op op>
[[gnu::target("avx2")]] void reduce_wide(const Reduction& reduction, std::byte* out,
                                         std::span<const std::byte* const> in,
                                         std::uint64_t count) {
  reduce_any<Element, op>(reduction, out, in, count);
}
#endif

template <typename Element, Op op>
void reduce_all(const Reduction& reduction, std::byte* out, std::span<const std::byte* const> in,
                std::uint64_t count, [[maybe_unused]] bool wide) {
#ifdef __x86_64__
  if (wide) return reduce_wide<Element, op>(reduction, out, in, count);
#endif
  reduce_any<Element, op>(reduction, out, in, count);
}

using Reduce = void (*)(const Reduction&, std::byte*, std::span<const std::byte* const>,
                        std::uint64_t, bool wide);

template <typename Element>
constexpr bool exists(Op op) noexcept {
  using Sum = typename Element::Sum;
  switch (op) {
    case Op::none: return false;
    case Op::sum:
    case Op::prod: return true;
    case Op::min:
    case Op::max: return !is_complex<Sum>;
    case Op::avg:
    case Op::premul_sum: return !std::is_integral_v<Sum>;
    case Op::band:
    case Op::bor:
    case Op::bxor: return std::is_integral_v<Sum>;
    case Op::land:
    case Op::lor: return !is_complex<Sum>;
  }
  return false;
}

template <typename Element>
Reduce reduce_for(Op op) noexcept {
  Reduce found = nullptr;
  const auto look = [&]<Op each>() {
    if constexpr (exists<Element>(each)) {
      if (op == each) found = reduce_all<Element, each>;
    }
  };
  look.template operator()<Op::sum>();
  look.template operator()<Op::prod>();
  look.template operator()<Op::min>();
  look.template operator()<Op::max>();
  look.template operator()<Op::avg>();
  look.template operator()<Op::premul_sum>();
  look.template operator()<Op::band>();
  look.template operator()<Op::bor>();
  look.template operator()<Op::bxor>();
  look.template operator()<Op::land>();
  look.template operator()<Op::lor>();
  return found;
}

Reduce reduce_for(Op op, const DType& dtype) noexcept {
  const auto is = [&](std::uint8_t code, unsigned bits) {
    return dtype == DType{code, static_cast<std::uint8_t>(bits), 1};
  };
  if (is(kDTypeFloat, 32)) return reduce_for<Plain<float>>(op);
  if (is(kDTypeFloat, 64)) return reduce_for<Plain<double>>(op);
  if (is(kDTypeFloat, 16)) return reduce_for<Float16>(op);
  if (is(kDTypeBfloat, 16)) return reduce_for<Bfloat16>(op);
  if (is(kDTypeInt, 8)) return reduce_for<Plain<std::int8_t>>(op);
  if (is(kDTypeInt, 16)) return reduce_for<Plain<std::int16_t>>(op);
  if (is(kDTypeInt, 32)) return reduce_for<Plain<std::int32_t>>(op);
  if (is(kDTypeInt, 64)) return reduce_for<Plain<std::int64_t>>(op);
  if (is(kDTypeUInt, 8)) return reduce_for<Plain<std::uint8_t>>(op);
  if (is(kDTypeUInt, 16)) return reduce_for<Plain<std::uint16_t>>(op);
  if (is(kDTypeUInt, 32)) return reduce_for<Plain<std::uint32_t>>(op);
  if (is(kDTypeUInt, 64)) return reduce_for<Plain<std::uint64_t>>(op);
  if (is(kDTypeComplex, 64)) return reduce_for<Plain<std::complex<float>>>(op);
  if (is(kDTypeComplex, 128)) return reduce_for<Plain<std::complex<double>>>(op);
  if (is(kDTypeBool, 8)) return reduce_for<Bool>(op);
  return nullptr;
}

}  // namespace

bool has_wide_vectors() noexcept {
#ifdef __x86_64__
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
#else
  return false;
#endif
}

std::string why_no_reduction(Op op, const DType& dtype) {
  if (reduce_for(op, dtype) != nullptr) return {};
  const std::string name(kOpNames[static_cast<std::size_t>(op)]);
  if (reduce_for(Op::sum, dtype) == nullptr) {
    return "arrays of " + dtype.name() +
           " have no reductions: convert them, to float32 for example";
  }
  const bool averages = op == Op::avg || op == Op::premul_sum;
  return "there is no " + name + " of " + dtype.name() +
         (averages ? ": take the sum, and divide it" : "");
}

void reduce(const Reduction& reduction, std::byte* out, std::span<const std::byte* const> in,
            std::uint64_t count, bool wide) {
  DType dtype = reduction.dtype;
  const bool by_parts = reduction.op == Op::sum || reduction.op == Op::avg;
  if (dtype.code == kDTypeComplex && by_parts && reduce_for(reduction.op, dtype) != nullptr) {
    dtype.code = kDTypeFloat;  // real and imaginary parts
    dtype.bits /= 2;
    count *= 2;
  }
  const Reduce found = reduce_for(reduction.op, dtype);
  if (found == nullptr)
    throw std::invalid_argument(why_no_reduction(reduction.op, reduction.dtype));
  if (in.empty()) throw std::invalid_argument("a reduction needs at least one array");
  found(reduction, out, in, count, wide);
}

}  // namespace zerohop::engine::collective
