// A reduction of arrays in one GPU's memory: the arguments of its kernel. Included by host code and
// by kernels.
#pragma once

#include <cstdint>

#include "gpu/group_call.hpp"

namespace zerohop::gpu {

constexpr unsigned kReduceInputs = 448;  // at most: a kernel has 4096 bytes of arguments
constexpr unsigned kReduceThreads = 256;

// out[i] = in[0][i] op in[1][i] op ..., from left to right. `out` may be one of the inputs.
// Addresses are of whole elements, and aligned for them.
struct ReduceCall {
  std::uint64_t out = 0;
  std::uint64_t nbytes = 0;
  double factor = 1;             // of premul_sum
  std::uint32_t op = 0;          // a ReduceOp
  GroupType type{};              // of the elements
  std::uint32_t count = 0;       // of inputs
  std::uint32_t ranks = 0;       // for avg
  std::uint32_t by_vectors = 0;  // not 0: all addresses are multiples of 16
  std::uint64_t in[kReduceInputs] = {};
};
static_assert(sizeof(ReduceCall) <= 4096);

}  // namespace zerohop::gpu
