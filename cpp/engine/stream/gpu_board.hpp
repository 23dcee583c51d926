// The notification board of this Endpoint as seen by GPUs of its process: values put by CPUs and
// adapters in its pages, notes of GPUs in their mirrors, or in the pages if there are no mirrors.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "engine/notify/board.hpp"
#include "engine/stream/note_mirrors.hpp"
#include "gpu/host_pages.hpp"

namespace zerohop::engine {

// Thread-safe.
class GpuBoard {
 public:
  GpuBoard(std::shared_ptr<Board> board, std::shared_ptr<NoteMirrors> mirrors);

  Board& board() const noexcept { return *board_; }
  NoteMirrors& mirrors() const noexcept { return *mirrors_; }

  struct Reached {
    std::uint64_t notes = 0;   // GPU address of the note of slot 0
    bool mirrors = false;      // ... in GPU memory
    std::uint64_t words = 0;   // GPU address of the value of slot 0
    std::uint64_t lonely = 0;  // and of that word
    std::array<std::shared_ptr<const void>, 2> kept{};
  };
  // Also settles the mirrors. Throws RouteUnavailable, CudaError.
  Reached reach(const std::shared_ptr<const gpu::Device>& device);

 private:
  const std::shared_ptr<Board> board_;
  const std::shared_ptr<NoteMirrors> mirrors_;
  const std::shared_ptr<gpu::HostPages> pages_;  // of the board
};

}  // namespace zerohop::engine
