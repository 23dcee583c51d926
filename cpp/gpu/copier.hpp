// Copies between a GPU's memory and the host's, through lanes of pinned chunks.
#pragma once

#include <memory>
#include <vector>

#include "base/locks.hpp"
#include "driver/copier.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

class Copier final : public driver::Copier {
 public:
  // Threads that copy at the same time; others wait for their turn.
  static constexpr unsigned kLanes = 4;

  // Pins kLanes * CopyLane::kChunks * chunk_nbytes of host memory. Throws CudaError.
  Copier(std::shared_ptr<Device> device, std::size_t chunk_nbytes);
  ~Copier() override;
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // The thread of a lane has the GPU's primary context current.
  int take(driver::CopyLane*& lane) noexcept override;
  void give_back(driver::CopyLane& lane) noexcept override;

 private:
  class Lane;

  const std::shared_ptr<Device> device_;
  const unsigned generation_;  // of the process (fork)
  std::vector<std::unique_ptr<Lane>> lanes_;
  Mutex<Rank::copier_lanes> mutex_;  // a leaf; guards the next
  std::vector<Lane*> free_;
  Condition given_back_;
};

}  // namespace zerohop::gpu
