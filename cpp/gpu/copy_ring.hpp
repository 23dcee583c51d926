// Asynchronous copies between slots of pinned host memory and one GPU: started, then polled.
// (Copier is the blocking counterpart.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gpu/copy_slots.hpp"
#include "gpu/device.hpp"

namespace zerohop::gpu {

class CopyRing {
 public:
  enum class Direction { to_host, to_device };
  struct Copy {
    std::byte* host;  // inside a slot
    std::uint64_t device;
    std::size_t nbytes;
  };

  // Pins slots * slot_nbytes of host memory. Throws CudaError.
  CopyRing(std::shared_ptr<const Device> device, unsigned slots, std::size_t slot_nbytes);
  ~CopyRing();
  CopyRing(const CopyRing&) = delete;
  CopyRing& operator=(const CopyRing&) = delete;

  std::byte* pages() const noexcept { return slots_->pages(); }

  // Both return 0 or the CUresult. After start() fails, query() covers the copies started before
  // the failure.
  int start(unsigned slot, Direction direction, std::span<const Copy> copies) noexcept;
  int query(unsigned slot) noexcept;  // see CopySlots

 private:
  int start_all(unsigned slot, Direction direction, std::span<const Copy> copies) noexcept;

  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  std::unique_ptr<CopySlots> slots_;
};

}  // namespace zerohop::gpu
