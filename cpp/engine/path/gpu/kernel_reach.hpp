// What kernels of this process reach by themselves of a process of this host: memory of its GPU,
// and its notification board.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/path/gpu/gpu_reach.hpp"
#include "engine/stats/route.hpp"
#include "gpu/device.hpp"
#include "shm/local_session.hpp"

namespace zerohop::engine {

// Who hears the notifications that they put.
enum class Hearers { kernels, cpu, both };

// For kernels to put notes into the board of a Peer, as a writer of their own.
struct KernelNotes {
  std::uint64_t mirrors = 0;  // where the GPU has that of slot 0; 0: not for those
  std::uint64_t notes = 0;    // the same on the board
  std::uint32_t writer = 0;   // from 1
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

// While what it returns lives the owner does not take the memory away, nor is it unmapped. Throws
// RouteUnavailable: it has been closed.
std::shared_ptr<const void> hold_for_kernels(const std::shared_ptr<shm::LocalSession>& session,
                                             GpuReach::Part part);

}  // namespace zerohop::engine
