// Has GPUs of this process put notes into a Peer's board, and their twins.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/board_pages.hpp"
#include "engine/gpu_windows.hpp"
#include "gpu/copy_stream.hpp"
#include "gpu/registered_pages.hpp"

namespace zerohop::engine {

// Any thread.
class GpuNotifier {
 public:
  struct Place {
    gpu::CopyStream::Put put;                         // slot 0: that GPU cannot
    std::vector<std::shared_ptr<const void>> kept{};  // until it has been put
  };
  // For a GPU to put `value` into a slot of the board that `visit`, which has been entered, maps.
  // windows: of the same Peer. deadline: of the first time, when it has to be asked.
  Place place(const std::shared_ptr<ipc::Visit>& visit, GpuWindows& windows,
              const std::shared_ptr<const gpu::Device>& device, std::uint32_t slot,
              std::uint32_t value, const Deadline& deadline);

  void leave() noexcept;  // lets go of the board

 private:
  // For good, with one visit.
  struct Board {
    std::weak_ptr<ipc::Visit> visit;
    std::shared_ptr<const gpu::RegisteredPages> pages;  // null: no GPU reaches it
    bool has_twins = false;
    std::uint32_t writer = 0;
    std::uint32_t first = 0;                                    // count of each slot, random
    std::unordered_map<std::uint32_t, std::uint32_t> counts{};  // of the notes put, by slot
  };
  void enter(const std::shared_ptr<ipc::Visit>& visit,
             const std::shared_ptr<const gpu::Device>& device);
  std::uint32_t next_tag(std::uint32_t slot);

  std::mutex mutex_;  // guards the next
  Board board_;
};

}  // namespace zerohop::engine
