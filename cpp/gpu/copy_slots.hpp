// Slots of pinned host memory, and one stream of copies between them and a GPU: the owner of what
// copies use until they are known to have ended. What may still run when the object goes stays as
// it is, pages, stream and events: freed, it would be written or read by the GPU all the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "driver/cuda_call.hpp"
#include "gpu/handles.hpp"

namespace zerohop::gpu {

class CopySlots {
 public:
  // Pins slots * slot_nbytes of host memory. The caller has made the device current, here and in
  // every function. Throws CudaError.
  CopySlots(const driver::Cuda& cuda, unsigned slots, std::size_t slot_nbytes);
  ~CopySlots();
  CopySlots(const CopySlots&) = delete;
  CopySlots& operator=(const CopySlots&) = delete;

  std::byte* pages() const noexcept { return static_cast<std::byte*>(pages_.get()); }

  // All return 0 or the CUresult. Copies run in the order in which they are started, whatever their
  // slot.
  int to_host(std::byte* host, std::uint64_t device, std::size_t nbytes) noexcept;
  int to_device(std::uint64_t device, const std::byte* host, std::size_t nbytes) noexcept;
  // What was started so far is what query() of this slot asks about from now on, whether or not
  // this succeeds.
  int mark(unsigned slot) noexcept;
  // 0: that has ended, and is visible to the CPU, to adapters, and to work that the GPU begins
  // later. kCudaErrorNotReady: it runs. Others: it may.
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
  bool started_ = false;  // copies since the last mark
};

}  // namespace zerohop::gpu
