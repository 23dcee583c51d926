// The mirrors of a board's notes, in the memory of a GPU: a stream that waits there hears of a note
// within the GPU's own memory, not across the bus.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/locks.hpp"
#include "engine/notify/board.hpp"
#include "gpu/gpu_words.hpp"
#include "gpu/kernels.hpp"
#include "gpu/peer_memory.hpp"
#include "shm/exposures.hpp"

namespace zerohop::engine {

// Any thread.
class NoteMirrors {
 public:
  // exposures: through which other processes reach them; null: none does.
  NoteMirrors(std::shared_ptr<Board> board, std::shared_ptr<shm::Exposures> exposures)
      : board_(std::move(board)), exposures_(std::move(exposures)) {}

  // Settles where they lie: on that GPU, if it can be done and nobody has put a note before. Only
  // the first call does anything.
  void settle(const std::shared_ptr<const gpu::Device>& device) noexcept;

  // Where a stream of `device` finds that of slot 0. Once settled. Throws RouteUnavailable: the GPU
  // does not reach the one that they lie on.
  struct Place {
    std::uint64_t address = 0;  // 0: there are none, and the notes are to be looked at
    std::shared_ptr<const void> owner = nullptr;
  };
  Place of(const std::shared_ptr<const gpu::Device>& device);
  std::string where() const;  // for a route's reason

 private:
  void make(const std::shared_ptr<const gpu::Device>& device);
  void give_up(const std::string& reason);
  std::shared_ptr<const gpu::PeerMemory> reach(
      const std::shared_ptr<const gpu::Device>& device) const;

  BoardPages::Mirrors& told() const noexcept { return board_->pages().mirrors; }

  const std::shared_ptr<Board> board_;
  const std::shared_ptr<shm::Exposures> exposures_;
  mutable Mutex<Rank::note_mirrors> mutex_;      // guards all below
  std::string why_none_;                         // once settled without
  std::shared_ptr<const gpu::Kernels> kernels_;  // loaded before anything on the GPU waits
  std::shared_ptr<const gpu::GpuWords> words_;   // null: none
  std::shared_ptr<shm::Exposure> exposure_;
  std::map<int, std::shared_ptr<const gpu::PeerMemory>> reached_;  // by other GPUs' ordinals
};

}  // namespace zerohop::engine
