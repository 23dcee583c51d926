// How GPUs of this process reach another process of this host: memory of its GPUs, and its host
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/locks.hpp"
#include "engine/memory/gpu_choice.hpp"
#include "engine/memory/remote_memory.hpp"
#include "engine/path/gpu/gpu_mappings.hpp"
#include "engine/path/gpu/gpu_notifier.hpp"
#include "engine/path/gpu/gpu_reach.hpp"
#include "engine/path/gpu/host_mappings.hpp"
#include "engine/path/local/neighbour.hpp"
#include "engine/path/message.hpp"

namespace zerohop::engine {

// Any thread. Patience: see Neighbour.
class RemoteGpus {
 public:
  RemoteGpus(std::shared_ptr<Neighbour> neighbour, std::shared_ptr<RouteBook> book)
      : neighbour_(std::move(neighbour)), book_(std::move(book)) {}

  using DevicePtr = std::shared_ptr<const gpu::Device>;
  // GPU memory in one chunk reached before, for that GPU of this process.
  struct Way {
    // Remembering it keeps nothing open or mapped.
    std::weak_ptr<shm::LocalSession> session;
    std::weak_ptr<const GpuMappings::Spot> place;
    std::shared_ptr<const Route> route;
  };
  std::shared_ptr<const Way> known(std::uint64_t local_key, int ordinal) const;
  void remember(std::uint64_t local_key, const GpuReach& reached);

  // GPU memory, chunk by chunk, mapped for that GPU of this process. Each sets everything except
  // the local side and the route.
  GpuReach reach(const RemoteMemory& remote, const DevicePtr& device,
                 const Neighbour::Patience& patience);
  // ... by a suitable one: the GPU that holds the memory, if this process sees it. given: see
  // GpuChoice::table().
  GpuReach reach_by_any(const RemoteMemory& remote, const GpuChoice::Table& given,
                        const Neighbour::Patience& patience);
  // ... by the GPU of that stream. Throws RouteUnavailable if it has none.
  GpuReach reach_by_stream(driver::CudaStream stream, const RemoteMemory& remote,
                           const GpuChoice::Table& given, const Neighbour::Patience& patience);
  // The GPU of that stream. Throws RouteUnavailable, CudaError.
  DevicePtr device_of(driver::CudaStream stream, const GpuChoice::Table& given);
  // Host memory, page-locked by this process.
  GpuReach reach_host(const RemoteMemory& remote, const DevicePtr& device,
                      const Neighbour::Patience& patience);

  // Lets a GPU of this process put a notification into the board.
  GpuNotifier::Place place_for_gpu(const std::shared_ptr<shm::LocalSession>& session,
                                   const DevicePtr& device, const Message& message,
                                   const Neighbour::Patience& patience) {
    return notifier_.place(session, gpus_, device, slot_of(message), message.value,
                           [&] { return neighbour_->until(patience); });
  }
  // The same for kernels of the program. Throws RouteUnavailable, and mapping errors.
  KernelNotes notes_for_kernels(const std::shared_ptr<shm::LocalSession>& session,
                                const KernelWriter& writer, const Neighbour::Patience& patience) {
    return notifier_.for_kernels(session, gpus_, writer, neighbour_->until(patience));
  }

  // remote: the GPU's name in the other process.
  std::shared_ptr<const Route> route(const GpuReach& reached, bool local_on_host,
                                     const std::string& remote);

  // See Neighbour.
  std::size_t sweep();
  void end() noexcept;
  std::map<int, GpuMappings::Mapped> mapped() const { return gpus_.mapped(); }

 private:
  template <typename Reach>
  GpuReach attempt(const Neighbour::Patience& patience, Reach reach);

  const std::shared_ptr<Neighbour> neighbour_;
  const std::shared_ptr<RouteBook> book_;
  GpuMappings gpus_;
  HostMappings hosts_;
  GpuChoice choice_;
  GpuNotifier notifier_;

  mutable Mutex<Rank::neighbour> mutex_;                                      // guards all below
  std::map<std::pair<std::uint64_t, int>, std::shared_ptr<const Way>> ways_;  // key and ordinal
  std::size_t ways_most_ = 64;  // number of entries at which dead ones are removed
  struct KnownRoute {
    int copies;          // ordinal of the copying GPU
    bool local_on_host;  // the local array
    int there;           // ordinal of the peer's GPU in this process
    std::string remote;  // ... its name at the peer
    std::shared_ptr<const Route> route;
  };
  std::vector<KnownRoute> routes_;  // a few
};

}  // namespace zerohop::engine
