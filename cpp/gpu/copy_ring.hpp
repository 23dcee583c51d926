// Slots of pinned host memory, and copies between them and one GPU that nobody waits for: they are
// started, and asked for later. (Copier has the same for those who wait.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/handles.hpp"

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

  std::byte* pages() const noexcept { return static_cast<std::byte*>(pages_.get()); }

  // Both return 0 or the CUresult; after an error, copies of that slot may still run. Copies run in
  // the order in which they are started, whatever their slot.
  int start(unsigned slot, Direction direction, std::span<const Copy> copies) noexcept;
  // Whether what was started last with that slot is done: visible to the CPU, to adapters, and to
  // work that the GPU begins later. kCudaErrorNotReady: not yet.
  int query(unsigned slot) noexcept;

 private:
  int start_all(unsigned slot, Direction direction, std::span<const Copy> copies) noexcept;

  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  PinnedPages pages_;
  Stream stream_;
  std::vector<Event> events_;  // by slot
};

}  // namespace zerohop::gpu
