// Copies between slots of pinned host memory and one GPU that nobody waits for: they are started,
// and asked for later. (Copier has the same for those who wait.)
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
    std::byte* host;  // in a slot
    std::uint64_t device;
    std::size_t nbytes;
  };

  // Pins slots * slot_nbytes of host memory. Throws CudaError.
  CopyRing(std::shared_ptr<const Device> device, unsigned slots, std::size_t slot_nbytes);
  ~CopyRing();
  CopyRing(const CopyRing&) = delete;
  CopyRing& operator=(const CopyRing&) = delete;

  std::byte* pages() const noexcept { return slots_->pages(); }

  // Both return 0 or the CUresult. After an error of start(), query() tells of what was started
  // before it.
  int start(unsigned slot, Direction direction, std::span<const Copy> copies) noexcept;
  int query(unsigned slot) noexcept;  // as of CopySlots

 private:
  int start_all(unsigned slot, Direction direction, std::span<const Copy> copies) noexcept;

  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  std::unique_ptr<CopySlots> slots_;
};

}  // namespace zerohop::gpu
