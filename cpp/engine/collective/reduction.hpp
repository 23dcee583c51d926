// Reductions, element by element, of arrays in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/dtype.hpp"
#include "base/reduce_op.hpp"

namespace zerohop::engine::collective {

using Op = ReduceOp;
inline constexpr auto& kOpNames = kReduceOpNames;

struct Reduction {
  Op op = Op::sum;
  DType dtype;
  double factor = 1;   // of premul_sum
  unsigned ranks = 0;  // whose blocks have been combined, for avg; 0: as many as there are arrays
};

// Why the operation does not exist for that type; empty: it does.
std::string why_no_reduction(Op op, const DType& dtype);

bool has_wide_vectors() noexcept;  // whether this machine has AVX2

// out[i] = in[0][i] op in[1][i] op ..., from left to right, so the result depends on nothing else.
// Integers wrap. float16 and bfloat16 are accumulated in float32 and rounded once. Bool: sum, max
// and bor are lor; prod, min and band are land. out may be one of the inputs. count: elements.
// Throws std::invalid_argument for an operation that does not exist.
// wide: by the vector instructions that every build must not assume; the results are the same.
void reduce(const Reduction& reduction, std::byte* out, std::span<const std::byte* const> in,
            std::uint64_t count, bool wide = has_wide_vectors());

}  // namespace zerohop::engine::collective
