// What kernels of this process reach by themselves of a process of this host: memory of its GPU,
// and its notification board.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/memory/memory.hpp"
#include "engine/path/gpu/gpu_reach.hpp"
#include "engine/path/verbs/direct_queue_pair.hpp"
#include "engine/stats/route.hpp"
#include "gpu/device.hpp"
#include "ipc/visit.hpp"

namespace zerohop::engine {

// Who hears the notifications that they put.
enum class Hearers { kernels, cpu, both };

// For kernels to put notes into the board of a Peer, as a writer of their own.
struct KernelNotes {
  std::uint64_t twins = 0;   // where the GPU has that of slot 0; 0: not for those
  std::uint64_t notes = 0;   // the same on the board
  std::uint32_t writer = 0;  // from 1
  std::vector<std::shared_ptr<const void>> kept{};  // as long as kernels may put any
};

struct KernelReach {
  std::shared_ptr<const gpu::Device> device;  // that runs the kernels
  std::uint64_t remote = 0;                   // where it has the first element
  bool puts = false;                          // what is allowed
  bool gets = false;
  bool atomics = false;  // whether the link carries them
  KernelNotes notes;
  std::shared_ptr<const Route> route;
  std::vector<std::shared_ptr<const void>> kept{};  // as long as kernels may touch anything
};

// The same where entries are carried out for kernels, by devices.
struct EntryReach {
  std::shared_ptr<const Pinned> local;
  bool puts = false;
  bool gets = false;
  bool atomics = false;
  std::shared_ptr<const Route> route;
};

// The same where kernels drive a queue pair by themselves.
struct DirectReach {
  EntryReach entries;
  std::shared_ptr<const DirectQueuePair> queue_pair;  // connected
  std::uint32_t local_key = 0;
  std::uint32_t remote_key = 0;
  std::uint64_t slots = 0;  // of the peer's board: where it has slot 0, and the key to them
  std::uint32_t slots_key = 0;
  std::shared_ptr<const void> target;  // the other end, as long as this lives
};

// While what it returns lives the owner does not take the memory away, nor is it unmapped. Throws
// RouteUnavailable: it has been closed.
std::shared_ptr<const void> hold_for_kernels(const std::shared_ptr<ipc::Visit>& visit,
                                             GpuReach::Part part);

}  // namespace zerohop::engine
