// Slots of this Endpoint's board that kernels of the program wait on: what GPUs put there is for
// them, as long as the claim stands, and not for the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/deadline.hpp"
#include "engine/stream/gpu_board.hpp"
#include "gpu/handles.hpp"
#include "gpu/kernels.hpp"

namespace zerohop::engine {

class SlotClaim {
 public:
  // Throws RouteUnavailable, CudaError, TransferTimeout (the GPU is kept busy).
  SlotClaim(std::shared_ptr<GpuBoard> board, std::shared_ptr<const gpu::Device> device,
            std::uint32_t first, std::uint32_t count, const Deadline& deadline);
  // What kernels have not taken is for the CPU again. The kernels that use the slots must have
  // ended; may wait for others, so on a thread apart.
  ~SlotClaim();
  SlotClaim(const SlotClaim&) = delete;
  SlotClaim& operator=(const SlotClaim&) = delete;

  const std::shared_ptr<const gpu::Device>& device() const noexcept { return device_; }
  const GpuBoard::Reached& reached() const noexcept { return reached_; }
  std::uint32_t first() const noexcept { return first_; }
  std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(taken_.size()); }

 private:
  void begin_waits();
  void end_waits(const std::vector<std::uint32_t>& tags) noexcept;
  // The mirrors of the slots, as they are now, in pinned memory.
  const gpu::Note* look_at_mirrors(const Deadline& deadline);
  void forget_taken(const Deadline& deadline);
  std::vector<std::uint32_t> find_taken(const Deadline& deadline);
  void wait(const Deadline& deadline);

  const std::shared_ptr<GpuBoard> board_;
  const std::shared_ptr<const gpu::Device> device_;
  const unsigned generation_;  // of the process (fork)
  const std::uint32_t first_;
  GpuBoard::Reached reached_;
  std::vector<GpuNotes::Tags> taken_;  // by the CPU, before the claim; of each slot
  std::shared_ptr<const gpu::Kernels> kernels_;
  gpu::PinnedPages copies_;  // of the mirrors; and behind them a list of those to be forgotten
  gpu::Stream stream_;
};

}  // namespace zerohop::engine
