// Slots of this Endpoint's board that the program's kernels wait on: while the claim exists, notes
// of GPUs belong to the kernels, not to the CPU.
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
  // Throws RouteUnavailable, CudaError, TransferTimeout (the GPU stays busy).
  SlotClaim(std::shared_ptr<GpuBoard> board, std::shared_ptr<const gpu::Device> device,
            std::uint32_t first, std::uint32_t count, const Deadline& deadline);
  // What kernels have not taken belongs to the CPU again. The kernels that use the slots must have
  // ended; may block, so destroy it on a separate thread.
  ~SlotClaim();
  SlotClaim(const SlotClaim&) = delete;
  SlotClaim& operator=(const SlotClaim&) = delete;

  const std::shared_ptr<const gpu::Device>& device() const noexcept { return device_; }
  const GpuBoard::Reached& reached() const noexcept { return reached_; }
  bool none_taken() const noexcept;  // the CPU had taken no note of a GPU from any slot before
  std::uint32_t first() const noexcept { return first_; }
  std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(taken_.size()); }

 private:
  void begin_waits();
  void end_waits(const std::vector<std::uint32_t>& tags) noexcept;
  // A snapshot of the slots' mirrors, in pinned memory.
  const gpu::Note* look_at_mirrors(const Deadline& deadline);
  void forget_taken(const Deadline& deadline);
  std::vector<std::uint32_t> find_taken(const Deadline& deadline);
  void wait(const Deadline& deadline);

  const std::shared_ptr<GpuBoard> board_;
  const std::shared_ptr<const gpu::Device> device_;
  const unsigned generation_;  // of the process (fork)
  const std::uint32_t first_;
  GpuBoard::Reached reached_;
  std::vector<GpuNotes::Tags> taken_;  // by the CPU, per slot, before the claim
  std::shared_ptr<const gpu::Kernels> kernels_;
  gpu::PinnedPages copies_;  // of the mirrors; followed by a list of those to forget
  gpu::Stream stream_;
};

}  // namespace zerohop::engine
