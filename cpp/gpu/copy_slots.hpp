// Slots of pinned host memory, and one stream of copies between them and a GPU. Owns what copies
// use until they are known to have finished. If copies may still run when the object is destroyed,
// it leaks pages, stream and events: the GPU would access freed memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "driver/cuda_call.hpp"
#include "gpu/handles.hpp"

namespace zerohop::gpu {

class CopySlots {
 public:
  // Pins slots * slot_nbytes of host memory. The caller has made the device current, here and for
  // every function. Throws CudaError.
  CopySlots(const driver::Cuda& cuda, unsigned slots, std::size_t slot_nbytes);
  ~CopySlots();
  CopySlots(const CopySlots&) = delete;
  CopySlots& operator=(const CopySlots&) = delete;

  std::byte* pages() const noexcept { return static_cast<std::byte*>(pages_.get()); }

  // All return 0 or the CUresult. Copies run in the order in which they were started, whatever
  // their slot.
  int to_host(std::byte* host, std::uint64_t device, std::size_t nbytes) noexcept;
  int to_device(std::uint64_t device, const std::byte* host, std::size_t nbytes) noexcept;
  // query() of this slot then covers all copies started so far, even if this fails.
  int mark(unsigned slot) noexcept;
  // 0: finished, and visible to the CPU, to adapters, and to later GPU work. kCudaErrorNotReady:
  // still running. Other errors: may still be running.
  int query(unsigned slot) noexcept;

 private:
  struct Slot {
    Event event;
    bool unmarked = false;  // the event could not be recorded
  };
  bool has_ended() noexcept;
  void leave() noexcept;

  const driver::Cuda& cuda_;
  PinnedPages pages_;
  Stream stream_;
  std::vector<Slot> slots_;
  bool started_ = false;  // copies were started since the last mark
};

}  // namespace zerohop::gpu
