// Lets GPUs of this process put notes into a Peer's board, and into its mirrors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "base/locks.hpp"
#include "engine/notify/board_pages.hpp"
#include "engine/path/gpu/gpu_mappings.hpp"
#include "engine/path/gpu/gpu_reach.hpp"
#include "engine/path/gpu/kernel_reach.hpp"
#include "gpu/copy_stream.hpp"
#include "gpu/host_pages.hpp"

namespace zerohop::engine {

// Any thread.
class GpuNotifier {
 public:
  struct Place {
    gpu::CopyStream::Put put;  // slot 0: that GPU cannot put
    // Keep both until the note has been put.
    std::shared_ptr<const gpu::HostPages> pages{};
    GpuReach::Held mirror{};
  };
  // For a GPU to put `value` into a slot of the board mapped by `session`, which has been entered.
  // mappings: of the same Peer. deadline(): for the first use, which sends a request to the owner.
  Place place(const std::shared_ptr<shm::LocalSession>& session, GpuMappings& mappings,
              const std::shared_ptr<const gpu::Device>& device, std::uint32_t slot,
              std::uint32_t value, const std::function<Deadline()>& deadline);

  // The same for kernels of the program, which put notes themselves. Throws RouteUnavailable if
  // they cannot, or if the notes would reach none of the hearers.
  KernelNotes for_kernels(const std::shared_ptr<shm::LocalSession>& session, GpuMappings& mappings,
                          const KernelWriter& writer, const Deadline& deadline);

  void end() noexcept;  // releases the board

 private:
  // Stays the same for one session.
  struct Board {
    std::weak_ptr<shm::LocalSession> session;
    std::shared_ptr<const gpu::HostPages> pages;  // null: no GPU can access it
    bool has_mirrors = false;
    std::uint32_t writer = 0;
    std::uint32_t first = 0;  // start of each slot's count, random
    std::unordered_map<std::uint32_t, std::uint32_t> counts{};  // of the notes put, by slot
  };
  void enter(const std::shared_ptr<shm::LocalSession>& session,
             const std::shared_ptr<const gpu::Device>& device);
  std::uint32_t next_tag(std::uint32_t slot);
  GpuMappings::Places mirror_of(std::uint64_t address, const BoardPages::Mirrors& mirrors,
                                shm::LocalSession& session, GpuMappings& mappings,
                                const std::shared_ptr<const gpu::Device>& device,
                                const std::function<Deadline()>& deadline);

  Mutex<Rank::gpu_notifier> mutex_;  // guards the next
  Board board_;
};

}  // namespace zerohop::engine
