// Ranks of a group of GPUs whose kernels run on CPU threads, with the plans of their calls.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cpu_kernels/cuda.hpp"
#include "engine/collective/group_plan.hpp"
#include "gpu/kernels/group_chunks.cu"
#include "gpu/kernels/group_packets.cu"

namespace zerohop::testing {

using engine::collective::GroupArrays;
using engine::collective::GroupLimits;
using engine::collective::Kind;
using engine::collective::Op;
using gpu::GroupArena;
using gpu::GroupEnd;

constexpr unsigned kThreads = 8;  // of each block: as many as ranks, at least
constexpr unsigned kBlocks = 2;
constexpr std::uint64_t kPatienceNs = 20'000'000'000;

template <typename T>
std::uint64_t address(const T* at) {
  return reinterpret_cast<std::uint64_t>(at);
}

// The ranks' arenas, and the words of their groups.
struct Job {
  explicit Job(unsigned ranks) : size(ranks) {
    for (unsigned rank = 0; rank < ranks; ++rank) {
      arenas.emplace_back(std::calloc(1, GroupArena{ranks}.nbytes()), &std::free);
    }
    ends.resize(ranks);
    cancelled.resize(ranks);
  }

  const unsigned size;
  std::vector<std::unique_ptr<void, void (*)(void*)>> arenas;
  std::vector<GroupEnd> ends;
  std::vector<std::uint32_t> cancelled;
  std::uint64_t patience = kPatienceNs;
  unsigned late = ~0U;  // a rank that begins when another has stored all that it can
  bool leave = false;   // whether ranks leave after their last call

  void leaves(unsigned rank) {
    for (const auto& arena : arenas) {
      gpu::put_word(address(arena.get()) + GroupArena::left(rank), std::uint32_t{1});
    }
  }
};

using Launches = std::vector<gpu::Group::Launch>;  // of one rank, one after the other

// One thread of one block of one rank.
inline void run(Job& job, unsigned rank, const Launches& launches, unsigned thread, unsigned block,
                ThreadBlock& mine, gpu::ChunkShared& shared, std::barrier<>& all) {
  threadIdx.x = thread;
  blockIdx.x = block;
  blockDim.x = kThreads;
  this_block = &mine;
  if (rank == job.late) {
    const unsigned other = rank == 0 ? 1 : 0;
    const std::uint64_t flag = address(job.arenas[rank].get()) + GroupArena::first(0, 0, other);
    while (gpu::glance(flag) == 0) std::this_thread::yield();
  }
  for (gpu::Group::Launch launch : launches) {
    gridDim.x = launch.blocks;
    for (unsigned each = 0; each < job.size; ++each) {
      launch.call.arenas[each] = address(job.arenas[each].get());
    }
    launch.call.end = address(&job.ends[rank]);
    launch.call.cancelled = address(&job.cancelled[rank]);
    launch.call.nanoseconds = job.patience;
    if (block < launch.blocks && launch.by_packets) {
      gpu::run_packets(launch.call);
    } else if (block < launch.blocks) {
      gpu::run_chunks(launch.call, shared);
    }
    all.arrive_and_wait();  // a kernel begins when the one before has ended
  }
  if (job.leave && thread == 0 && block == 0) job.leaves(rank);
}

// launches: by rank.
inline void run(Job& job, const std::vector<Launches>& launches) {
  std::vector<std::unique_ptr<ThreadBlock>> blocks;
  std::vector<std::unique_ptr<gpu::ChunkShared>> shared;
  std::vector<std::unique_ptr<std::barrier<>>> kernels;
  std::vector<std::jthread> threads;
  for (unsigned rank = 0; rank < job.size; ++rank) {
    kernels.push_back(std::make_unique<std::barrier<>>(kBlocks * kThreads));
    for (unsigned block = 0; block < kBlocks; ++block) {
      blocks.push_back(std::make_unique<ThreadBlock>(kThreads));
      shared.push_back(std::make_unique<gpu::ChunkShared>());
      for (unsigned thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&job, &launches, rank, thread, block, mine = blocks.back().get(),
                              place = shared.back().get(), all = kernels.back().get()] {
          run(job, rank, launches[rank], thread, block, *mine, *place, *all);
        });
      }
    }
  }
}

// Small, so that few bytes go in several pieces.
inline GroupLimits limits(unsigned size, bool by_packets) {
  GroupLimits made(size);
  made.packet_bytes = by_packets ? 4096 : 0;
  made.least_chunk = made.chunk_bytes = 64;
  made.blocks = kBlocks;
  return made;
}

// Arrays of one rank, of int32 unless said otherwise.
using Array = std::vector<std::int32_t>;

inline Array numbers(unsigned rank, std::size_t count) {
  Array made(count);
  for (std::size_t i = 0; i < count; ++i) {
    made[i] = static_cast<std::int32_t>(1000 * rank + 7 * i);
  }
  return made;
}
inline std::int32_t number(unsigned rank, std::size_t i) {
  return static_cast<std::int32_t>(1000 * rank + 7 * i);
}
inline std::int32_t sum(unsigned ranks, std::size_t i) {
  std::int32_t total = 0;
  for (unsigned rank = 0; rank < ranks; ++rank) total += number(rank, i);
  return total;
}

inline std::vector<std::uint64_t> rows(const Array& array, unsigned size) {
  std::vector<std::uint64_t> found;
  for (unsigned rank = 0; rank < size; ++rank) {
    found.push_back(address(array.data()) + rank * (array.size() / size) * sizeof(array[0]));
  }
  return found;
}

struct Calls {
  Job job;
  const unsigned size;
  const GroupLimits limit;
  std::vector<Launches> launches;

  Calls(unsigned ranks, bool by_packets)
      : job(ranks), size(ranks), limit(limits(ranks, by_packets)), launches(ranks) {}

  void add(unsigned rank, Kind kind, std::int32_t root, Op op, std::size_t count,
           const std::vector<std::uint64_t>& from, const std::vector<std::uint64_t>& to) {
    const GroupArrays arrays{.kind = kind,
                             .root = root,
                             .reduction = {.op = op, .dtype = DType::parse("int32")},
                             .nbytes = count * sizeof(std::int32_t),
                             .from = from,
                             .to = to};
    launches[rank].push_back(plan({rank, size}, arrays, limit));
  }
  void go() {
    run(job, launches);
    for (const GroupEnd& end : job.ends) CHECK(end.what == GroupEnd::fine);
  }
};

inline const std::vector<std::uint64_t> kNone;

}  // namespace zerohop::testing
