// Reductions: the same bits with and without vector instructions that only some machines have.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "engine/collective/reduction.hpp"

namespace zerohop::engine::collective {
namespace {

constexpr std::array kDTypes{
    DType{kDTypeInt, 8, 1},      DType{kDTypeInt, 16, 1},      DType{kDTypeInt, 32, 1},
    DType{kDTypeInt, 64, 1},     DType{kDTypeUInt, 8, 1},      DType{kDTypeUInt, 16, 1},
    DType{kDTypeUInt, 32, 1},    DType{kDTypeUInt, 64, 1},     DType{kDTypeFloat, 16, 1},
    DType{kDTypeBfloat, 16, 1},  DType{kDTypeFloat, 32, 1},    DType{kDTypeFloat, 64, 1},
    DType{kDTypeComplex, 64, 1}, DType{kDTypeComplex, 128, 1}, DType{kDTypeBool, 8, 1}};

using Bytes = std::vector<std::byte>;

// Unaligned, beyond a block, and with a rest that fills no vector.
constexpr std::uint64_t kCount = 1037;
constexpr std::size_t kOffset = 1;

// Floats below 2: which of two NaNs a sum is depends on the compiler.
Bytes random_bytes(const DType& dtype, std::mt19937& random) {
  Bytes made(kOffset + kCount * dtype.itemsize());
  const bool is_complex = dtype.code == kDTypeComplex;
  const bool is_float = is_complex || dtype.code == kDTypeFloat || dtype.code == kDTypeBfloat;
  const std::size_t width = dtype.itemsize() / (is_complex ? 2 : 1);
  for (std::size_t i = kOffset; i < made.size(); ++i) {
    const bool has_sign = (i - kOffset) % width == width - 1;
    const unsigned mask = dtype.code == kDTypeBool ? 1 : is_float && has_sign ? 0xbf : 0xff;
    made[i] = static_cast<std::byte>(random() & mask);
  }
  return made;
}

Bytes reduced(const Reduction& reduction, std::vector<Bytes> inputs, bool in_place, bool wide) {
  std::vector<const std::byte*> begins;
  for (const Bytes& each : inputs) begins.push_back(each.data() + kOffset);
  Bytes apart(inputs[0].size());
  Bytes& out = in_place ? inputs.back() : apart;
  reduce(reduction, out.data() + kOffset, begins, kCount, wide);
  return {out.begin() + kOffset, out.end()};
}

TEST_CASE("reductions have the same bits on machines with wide vectors and without, in place too") {
  std::mt19937 random(7);
  for (const DType& dtype : kDTypes) {
    for (std::size_t op = 1; op < kOpNames.size(); ++op) {
      const Reduction reduction{.op = static_cast<Op>(op), .dtype = dtype, .factor = 0.3};
      if (!why_no_reduction(reduction.op, dtype).empty()) continue;
      for (std::size_t inputs = 1; inputs <= 5; ++inputs) {
        std::vector<Bytes> given;
        while (given.size() < inputs) given.push_back(random_bytes(dtype, random));
        const Bytes expected = reduced(reduction, given, false, false);
        CAPTURE(dtype.name());
        CAPTURE(kOpNames[op]);
        CAPTURE(inputs);
        CHECK(reduced(reduction, given, true, false) == expected);
        if (!has_wide_vectors()) continue;  // then there is nothing to compare
        CHECK(reduced(reduction, given, false, true) == expected);
        CHECK(reduced(reduction, given, true, true) == expected);
      }
    }
  }
}

}  // namespace
}  // namespace zerohop::engine::collective
