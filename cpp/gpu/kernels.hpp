// The kernels of this library, loaded on one GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/fork.hpp"
#include "gpu/copy_piece.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

class Kernels {
 public:
  // Throws RouteUnavailable when the library was built without kernels, CudaError (209: none for
  // this GPU).
  static std::shared_ptr<const Kernels> load(std::shared_ptr<const Device> device);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Puts the copies of `count` pieces into the stream. `pieces`: where the GPU finds the list,
  // which must stay as it is until they are done. The caller has made the device current. Throws
  // CudaError.
  void copy_pieces(driver::CudaAddress pieces, std::uint32_t count,
                   driver::CudaStream stream) const;

 private:
  explicit Kernels(std::shared_ptr<const Device> device)
      : device_(std::move(device)), generation_(fork_generation()) {}

  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  driver::CudaModule module_ = nullptr;
  driver::CudaFunction copy_pieces_ = nullptr;
};

}  // namespace zerohop::gpu
