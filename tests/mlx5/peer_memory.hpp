// The program's memory on GPUs by its addresses, in place of the kernel module nvidia-peermem:
// found and copied by the CUDA driver that the program has loaded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "driver/copier.hpp"
#include "driver/cuda.hpp"

namespace zerohop::mlx5sim {

class PeerMemory {
 public:
  // By which to reach those bytes; null: they are not a GPU's. Throws Refused where the module
  // would not give all of them to an adapter.
  std::shared_ptr<driver::Copier> copier(std::uint64_t address, std::uint64_t nbytes);

 private:
  std::shared_ptr<const driver::Cuda> cuda_;                // null: not loaded yet
  std::map<int, std::shared_ptr<driver::Copier>> copiers_;  // by the GPU's ordinal
};

}  // namespace zerohop::mlx5sim
