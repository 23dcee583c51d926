// Slots of this process's board, for the program's kernels to wait on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/stream/slot_claim.hpp"
#include "gda/device_value.hpp"
#include "zerohop/types.h"

namespace zerohop::gda {

class DeviceBoard {
 public:
  // Throws CudaError, TransferTimeout (the GPU stays busy). Once this object is destroyed, the
  // claim ends when the GPU has finished its work so far.
  DeviceBoard(const std::shared_ptr<const engine::SlotClaim>& claim, const Deadline& deadline);

  const device::Board& value() const noexcept { return board_; }
  std::uint64_t address() const noexcept { return memory_.address(); }  // in GPU memory
  const std::string& device() const noexcept { return device_; }

 private:
  const std::string device_;
  const device::Board board_;
  DeviceValue memory_;
};

}  // namespace zerohop::gda
