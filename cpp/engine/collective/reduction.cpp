#include "engine/collective/reduction.hpp"

#include <algorithm>
#include <complex>
#include <cstring>
#include <stdexcept>
#include <type_traits>

namespace zerohop::engine::collective {
namespace {

constexpr std::size_t kBlock = 512;  // elements, accumulated in the first-level cache

template <typename Element>
typename Element::Sum load_at(const std::byte* from, std::uint64_t i) noexcept {
  typename Element::Stored stored;  // the array may not be aligned
  std::memcpy(&stored, from + i * sizeof(stored), sizeof(stored));
  return Element::load(stored);
}

template <typename Element, Op op>
void reduce_all(const Reduction& reduction, std::byte* out, std::span<const std::byte* const> in,
                std::uint64_t count) {
  using Stored = typename Element::Stored;
  using Sum = typename Element::Sum;
  Sum sums[kBlock];
  for (std::uint64_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min<std::uint64_t>(kBlock, count - begin);
    const std::byte* const first = in.front() + begin * sizeof(Stored);
    for (std::size_t i = 0; i < length; ++i) {
      sums[i] = first_of<op>(load_at<Element>(first, i));
    }
    for (const std::byte* const other : in.subspan(1)) {
      const std::byte* const next = other + begin * sizeof(Stored);
      for (std::size_t i = 0; i < length; ++i) {
        sums[i] = combine<op>(sums[i], load_at<Element>(next, i));
      }
    }
    const auto ranks = static_cast<unsigned>(in.size());
    std::byte* const to = out + begin * sizeof(Stored);
    for (std::size_t i = 0; i < length; ++i) {
      const Stored stored = Element::store(last_of<op>(sums[i], ranks, reduction.factor));
      std::memcpy(to + i * sizeof(stored), &stored, sizeof(stored));
    }
  }
}

using Reduce = void (*)(const Reduction&, std::byte*, std::span<const std::byte* const>,
                        std::uint64_t);

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
            std::uint64_t count) {
  const Reduce found = reduce_for(reduction.op, reduction.dtype);
  if (found == nullptr)
    throw std::invalid_argument(why_no_reduction(reduction.op, reduction.dtype));
  if (in.empty()) throw std::invalid_argument("a reduction needs at least one array");
  found(reduction, out, in, count);
}

}  // namespace zerohop::engine::collective
