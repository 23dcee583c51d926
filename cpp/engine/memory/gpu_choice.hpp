// Which GPU of this process copies between memory of the host here and that of a GPU of a Peer.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/locks.hpp"
#include "base/refusal.hpp"
#include "gpu/device.hpp"

namespace zerohop::engine {

// Any thread. The GPUs stay open, as their contexts take long to make.
class GpuChoice {
 public:
  using DevicePtr = std::shared_ptr<const gpu::Device>;
  using Table = std::shared_ptr<const driver::Cuda>;

  // Throws RouteUnavailable where this process has no GPU. given: the driver; null: libcuda.
  Table table(const Table& given);

  // The one that was found to reach the peer's GPU of that name; null: none yet.
  DevicePtr found(const std::string& remote) const;
  void remember(const std::string& remote, DevicePtr device);

  // What is to be tried: that GPU itself where this process sees it, else all that it sees. Throws
  // CudaError.
  static std::vector<int> candidates(const driver::Cuda& cuda, const driver::CudaUuid& gpu);
  DevicePtr open(const Table& cuda, int ordinal);  // throws CudaError

 private:
  Refusal none_;
  mutable Mutex<Rank::gpu_choice> mutex_;  // guards the next two
  std::map<int, DevicePtr> opened_;
  std::map<std::string, DevicePtr> found_;
};

}  // namespace zerohop::engine
