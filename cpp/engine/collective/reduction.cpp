#include "engine/collective/reduction.hpp"

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstring>
#include <stdexcept>
#include <type_traits>

namespace zerohop::engine::collective {
namespace {

// The iterations of the next loop do not depend on each other.
#ifdef __clang__
#define ZEROHOP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define ZEROHOP_INDEPENDENT _Pragma("GCC ivdep")
#endif

constexpr std::size_t kBlock = 512;  // elements, accumulated in the first-level cache

template <typename Element>
typename Element::Sum load_at(const std::byte* from, std::uint64_t i) noexcept {
  typename Element::Stored stored;  // the array may not be aligned
  std::memcpy(&stored, from + i * sizeof(stored), sizeof(stored));
  return Element::load(stored);
}

template <typename Element, Op op>
[[gnu::always_inline]] inline void reduce_any(const Reduction& reduction, std::byte* out,
                                              std::span<const std::byte* const> in,
                                              std::uint64_t count) {
  using Stored = typename Element::Stored;
  using Sum = typename Element::Sum;
  const auto ranks = reduction.ranks > 0 ? reduction.ranks : static_cast<unsigned>(in.size());
  const double factor = reduction.factor;
  const auto store = [&](std::byte* to, std::uint64_t i, Sum sum) {
    const Stored stored = Element::store(last_of<op>(sum, ranks, factor));
    std::memcpy(to + i * sizeof(stored), &stored, sizeof(stored));
  };
  if (!std::is_same_v<Element, Float16Element> && in.size() == 2) {  // needs no sums in memory
    const std::byte *const one = in[0], *const other = in[1];
    ZEROHOP_INDEPENDENT  // out is one of the two, or apart from them
        for (std::uint64_t i = 0; i < count; ++i) {
      store(out, i,
            combine<op>(first_of<op>(load_at<Element>(one, i)), load_at<Element>(other, i)));
    }
    return;
  }
  Sum sums[kBlock];
  for (std::uint64_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min<std::uint64_t>(kBlock, count - begin);
    const auto at = [&](std::size_t number) { return in[number] + begin * sizeof(Stored); };
    const std::byte* const one = at(0);
    for (std::size_t i = 0; i < length; ++i) sums[i] = first_of<op>(load_at<Element>(one, i));
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
Reduce reduce_for(Op op) noexcept {
  Reduce found = nullptr;
  const auto look = [&]<Op each>() {
    if constexpr (has_reduction<Element>(each)) {
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
  if (is(kDTypeFloat, 32)) return reduce_for<PlainElement<float>>(op);
  if (is(kDTypeFloat, 64)) return reduce_for<PlainElement<double>>(op);
  if (is(kDTypeFloat, 16)) return reduce_for<Float16Element>(op);
  if (is(kDTypeBfloat, 16)) return reduce_for<Bfloat16Element>(op);
  if (is(kDTypeInt, 8)) return reduce_for<PlainElement<std::int8_t>>(op);
  if (is(kDTypeInt, 16)) return reduce_for<PlainElement<std::int16_t>>(op);
  if (is(kDTypeInt, 32)) return reduce_for<PlainElement<std::int32_t>>(op);
  if (is(kDTypeInt, 64)) return reduce_for<PlainElement<std::int64_t>>(op);
  if (is(kDTypeUInt, 8)) return reduce_for<PlainElement<std::uint8_t>>(op);
  if (is(kDTypeUInt, 16)) return reduce_for<PlainElement<std::uint16_t>>(op);
  if (is(kDTypeUInt, 32)) return reduce_for<PlainElement<std::uint32_t>>(op);
  if (is(kDTypeUInt, 64)) return reduce_for<PlainElement<std::uint64_t>>(op);
  if (is(kDTypeComplex, 64)) return reduce_for<PlainElement<std::complex<float>>>(op);
  if (is(kDTypeComplex, 128)) return reduce_for<PlainElement<std::complex<double>>>(op);
  if (is(kDTypeBool, 8)) return reduce_for<BoolElement>(op);
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
  std::string remedy;
  if (op == Op::avg) remedy = ": take the sum, and divide it";
  if (op == Op::premul_sum) remedy = ": take the sum, and multiply it";
  return "there is no " + name + " of " + dtype.name() + remedy;
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
