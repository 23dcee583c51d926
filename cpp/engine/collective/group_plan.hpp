// How a group of GPUs carries out a collective: which bytes each kernel stores where.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/collective/call_log.hpp"
#include "gpu/group.hpp"

namespace zerohop::engine::collective {

// A call of one rank. Addresses are of GPU memory; 0: none.
struct GroupArrays {
  Kind kind{};
  std::int32_t root = kNoRoot;
  Reduction reduction;       // op none: nothing is reduced
  std::uint64_t nbytes = 0;  // of a block, the same on all ranks: of a reduce_scatter, each part
  // The block sent, or those for each rank; where one comes, or those of each rank.
  std::span<const std::uint64_t> from;
  std::span<const std::uint64_t> to;
};

struct GroupPlace {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
};

// Why kernels cannot carry it out; empty: they can.
std::string why_no_kernel(Kind kind, const DType& dtype, Op op);

// Without the arenas and the bound of waits.
gpu::Group::Launch plan(const GroupPlace& place, const GroupArrays& arrays);

// A call as 64 bits that say what it is, for the messages of other ranks.
std::uint64_t to_code(const GroupArrays& arrays);
std::string text_of_code(std::uint64_t code);

}  // namespace zerohop::engine::collective
