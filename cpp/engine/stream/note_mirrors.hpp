// Mirrors of a board's notes in GPU memory: a waiting stream polls within the GPU's own memory, not
// across the bus.
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

// Thread-safe.
class NoteMirrors {
 public:
  // exposures: makes them accessible to other processes; null: none.
  NoteMirrors(std::shared_ptr<Board> board, std::shared_ptr<shm::Exposures> exposures)
      : board_(std::move(board)), exposures_(std::move(exposures)) {}

  // Decides where they lie: on that GPU, if possible and no note was put before. Only the first
  // call does anything.
  void settle(const std::shared_ptr<const gpu::Device>& device) noexcept;

  // The address of slot 0's mirror for a stream of `device`. Call after settle(). Throws
  // RouteUnavailable: the GPU cannot access the one that holds them.
  struct Place {
    std::uint64_t address = 0;  // 0: no mirrors; poll the notes
    std::shared_ptr<const void> owner = nullptr;
  };
  Place of(const std::shared_ptr<const gpu::Device>& device);
  std::string where() const;  // for a route's reason

 private:
  void make(const std::shared_ptr<const gpu::Device>& device);
  void set_none(const std::string& reason);
  std::shared_ptr<const gpu::PeerMemory> reach(
      const std::shared_ptr<const gpu::Device>& device) const;

  BoardPages::Mirrors& shared() const noexcept { return board_->pages().mirrors; }

  const std::shared_ptr<Board> board_;
  const std::shared_ptr<shm::Exposures> exposures_;
  mutable Mutex<Rank::note_mirrors> mutex_;      // guards all members below
  std::string why_none_;                         // set when settled without mirrors
  std::shared_ptr<const gpu::Kernels> kernels_;  // loaded before anything on the GPU waits
  std::shared_ptr<const gpu::GpuWords> words_;   // null: none
  std::shared_ptr<shm::Exposure> exposure_;
  std::map<int, std::shared_ptr<const gpu::PeerMemory>> reached_;  // by other GPUs' ordinals
};

}  // namespace zerohop::engine
