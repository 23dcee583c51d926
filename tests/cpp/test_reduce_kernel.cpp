// The kernel that reduces arrays of a GPU, run by CPU threads: the bits of the host's reduction.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "cpu_kernels/cuda.hpp"
#include "engine/collective/group_plan.hpp"
#include "engine/collective/reduction.hpp"
#include "gpu/kernels/reduce.cu"

namespace zerohop::testing {
namespace {

using engine::collective::kOpNames;
using engine::collective::Op;
using engine::collective::Reduction;
using engine::collective::why_no_reduction;

constexpr unsigned kThreads = 4;  // of each block
constexpr unsigned kBlocks = 2;
constexpr unsigned kMost = 5;  // inputs

constexpr std::array kNames{"bool",     "int8",    "int16",   "int32",     "int64",
                            "uint8",    "uint16",  "uint32",  "uint64",    "float16",
                            "bfloat16", "float32", "float64", "complex64", "complex128"};

void run(const gpu::ReduceCall& call) {
  std::vector<std::jthread> threads;
  for (unsigned number = 0; number < kBlocks * kThreads; ++number) {
    threads.emplace_back([&call, number] {
      threadIdx.x = number % kThreads;
      blockIdx.x = number / kThreads;
      blockDim.x = kThreads;
      gridDim.x = kBlocks;
      gpu::InputsReduction mine(call);
      gpu::for_type(call.type, mine);
    });
  }
}

// Elements for the inputs, at addresses that are multiples of 16 bytes.
struct Inputs {
  alignas(16) std::array<std::array<std::byte, 4096>, kMost> bytes{};

  // Floats below 2: which of two NaNs a sum is depends on the compiler.
  Inputs(const DType& dtype, std::mt19937& random) {
    const bool is_complex = dtype.code == kDTypeComplex;
    const bool is_float = is_complex || dtype.code == kDTypeFloat || dtype.code == kDTypeBfloat;
    const std::size_t width = dtype.itemsize() / (is_complex ? 2 : 1);
    for (auto& array : bytes) {
      for (std::size_t i = 0; i < array.size(); ++i) {
        const unsigned mask = dtype.code == kDTypeBool             ? 1
                              : is_float && i % width == width - 1 ? 0xbf
                                                                   : 0xff;
        array[i] = static_cast<std::byte>(random() & mask);
      }
    }
  }
};

struct Case {
  std::size_t first = 0;  // element
  std::size_t count = 0;
  unsigned inputs = 1;
  bool in_place = false;
};

void check(const Reduction& reduction, const Case& given, Inputs inputs) {
  const std::size_t item = reduction.dtype.itemsize();
  const std::size_t nbytes = given.count * item;
  std::vector<std::byte> expected(nbytes + 1);
  std::vector<const std::byte*> in;
  gpu::ReduceCall call{.nbytes = nbytes,
                       .factor = reduction.factor,
                       .op = static_cast<std::uint32_t>(reduction.op),
                       .type = *engine::collective::type_of(reduction.dtype),
                       .count = given.inputs,
                       .ranks = reduction.ranks,
                       .by_vectors = given.first == 0 ? 1U : 0U};
  for (unsigned i = 0; i < given.inputs; ++i) {
    in.push_back(inputs.bytes[i].data() + given.first * item);
    call.in[i] = reinterpret_cast<std::uint64_t>(in[i]);
  }
  engine::collective::reduce(reduction, expected.data(), in, given.count);
  alignas(16) std::array<std::byte, 4096> apart{};
  std::byte* const out =
      given.in_place ? inputs.bytes[given.inputs - 1].data() + given.first * item : apart.data();
  const std::byte after = out[nbytes];
  call.out = reinterpret_cast<std::uint64_t>(out);
  run(call);
  REQUIRE(std::equal(out, out + nbytes, expected.begin()));
  REQUIRE(out[nbytes] == after);
}

TEST_CASE("every operation of every type, by vectors and by elements, in place too") {
  std::mt19937 random(11);
  for (const char* const name : kNames) {
    const DType dtype = DType::parse(name);
    const Inputs inputs(dtype, random);
    for (std::size_t op = 1; op < kOpNames.size(); ++op) {
      const Reduction reduction{
          .op = static_cast<Op>(op), .dtype = dtype, .factor = 0.3, .ranks = 7};
      if (!why_no_reduction(reduction.op, dtype).empty()) continue;
      CAPTURE(name);
      CAPTURE(kOpNames[op]);
      check(reduction, {.first = 0, .count = 203, .inputs = kMost}, inputs);
      check(reduction, {.first = 0, .count = 64, .inputs = 1}, inputs);
      check(reduction, {.first = 1, .count = 77, .inputs = 2, .in_place = true}, inputs);
      check(reduction, {.first = 0, .count = 1, .inputs = 3, .in_place = true}, inputs);
    }
  }
}

}  // namespace
}  // namespace zerohop::testing
