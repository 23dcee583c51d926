// Direct access of this process's kernels to another process of this host: memory of its GPU, and
// its notification board.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/path/gpu/gpu_reach.hpp"
#include "engine/stats/route.hpp"
#include "gpu/device.hpp"
#include "shm/local_session.hpp"

namespace zerohop::engine {

// The receivers of the notifications that they put.
enum class Hearers { kernels, cpu, both };

// Lets kernels put notes into the board of a Peer, as a separate writer.
struct KernelNotes {
  std::uint64_t mirrors = 0;                        // GPU address of the mirror of slot 0; 0: none
  std::uint64_t notes = 0;                          // GPU address of the board's notes; 0: none
  std::uint32_t writer = 0;                         // from 1
  std::vector<std::shared_ptr<const void>> kept{};  // while kernels may put notes
};

// Kernels that put notes.
struct KernelWriter {
  std::shared_ptr<const gpu::Device> device;
  Hearers hearers = Hearers::both;
  std::uint32_t number = 0;  // 0: a number that no other writer of the board has
};

struct KernelReach {
  std::shared_ptr<const gpu::Device> device;  // runs the kernels
  std::uint64_t remote = 0;                   // GPU address of the first element
  bool puts = false;                          // allowed operations
  bool gets = false;
  bool atomics = false;  // whether the link supports them
  KernelNotes notes;
  std::shared_ptr<const Route> route;
  std::vector<std::shared_ptr<const void>> kept{};  // while kernels may access anything
  std::shared_ptr<shm::LocalSession> session{};     // and the next: for hold_for_kernels()
  GpuReach::Part part{};
};

// While the returned object lives, the owner does not take the memory away, and it stays mapped.
// Throws RouteUnavailable if it has been closed.
std::shared_ptr<const void> hold_for_kernels(const std::shared_ptr<shm::LocalSession>& session,
                                             GpuReach::Part part);

}  // namespace zerohop::engine
