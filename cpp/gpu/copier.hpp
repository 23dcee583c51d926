// Copies between GPU memory and host memory, through lanes of pinned chunks.
#pragma once

#include <memory>
#include <vector>

#include "base/locks.hpp"
#include "driver/copier.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

class Copier final : public driver::Copier {
 public:
  // Number of threads that can copy at the same time; others block.
  static constexpr unsigned kLanes = 4;

  // Pins kLanes * CopyLane::kChunks * chunk_nbytes of host memory. Throws CudaError.
  Copier(std::shared_ptr<const Device> device, std::size_t chunk_nbytes);
  ~Copier() override;
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // Makes the GPU's primary context current in the thread that takes a lane.
  int take(driver::CopyLane*& lane) noexcept override;
  void give_back(driver::CopyLane& lane) noexcept override;

 private:
  class Lane;

  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  std::vector<std::unique_ptr<Lane>> lanes_;
  Mutex<Rank::copier_lanes> mutex_;  // a leaf; guards free_
  std::vector<Lane*> free_;
  Condition given_back_;
};

}  // namespace zerohop::gpu
