// Which GPU of this process copies between local host memory and memory of a Peer's GPU.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/locks.hpp"
#include "base/refusal.hpp"
#include "gpu/device.hpp"

namespace zerohop::engine {

// Thread-safe. The GPUs stay open, as creating their contexts takes long.
class GpuChoice {
 public:
  using DevicePtr = std::shared_ptr<const gpu::Device>;
  using Table = std::shared_ptr<const driver::Cuda>;

  // Throws RouteUnavailable where this process has no GPU. given: the driver; null: libcuda.
  Table table(const Table& given);

  // The GPU known to reach the peer's GPU of that name; null: none yet.
  DevicePtr found(const std::string& remote) const;
  void remember(const std::string& remote, DevicePtr device);

  // Candidates: that GPU itself if this process sees it, else all visible GPUs. Throws CudaError.
  static std::vector<int> candidates(const driver::Cuda& cuda, const driver::CudaUuid& gpu);
  DevicePtr open(const Table& cuda, int ordinal);  // throws CudaError

 private:
  Refusal none_;
  mutable Mutex<Rank::gpu_choice> mutex_;  // guards the next two
  std::map<int, DevicePtr> opened_;
  std::map<std::string, DevicePtr> found_;
};

}  // namespace zerohop::engine
