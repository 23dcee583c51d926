// How a group of GPUs carries out a collective: which bytes each kernel stores where.
#pragma once

#include <cstdint>
#include <optional>
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

// Which way blocks go, and in how many pieces; tests take smaller ones.
struct GroupLimits {
  std::uint64_t packet_bytes;  // of a block that goes by packets
  // The smallest chunk that is worth a block of threads: its flags take as long as so many bytes.
  std::uint64_t least_chunk = std::uint64_t{16} << 10;
  std::uint64_t chunk_bytes;  // the largest
  unsigned blocks = gpu::kGroupBlocks;

  explicit GroupLimits(std::uint32_t size)
      : packet_bytes(gpu::GroupArena{size}.packet_bytes()),
        chunk_bytes(gpu::GroupArena{size}.chunk_bytes()) {}
};

// Without the arenas and the bound of waits.
gpu::Group::Launch plan(const GroupPlace& place, const GroupArrays& arrays,
                        const GroupLimits& limits);

// How kernels keep elements; nullopt: they have no such type.
std::optional<gpu::GroupType> type_of(const DType& dtype);

// A call as 64 bits that say what it is, for the messages of other ranks.
std::uint64_t to_code(const GroupArrays& arrays);
std::string text_of_code(std::uint64_t code);

}  // namespace zerohop::engine::collective
