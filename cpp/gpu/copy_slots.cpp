#include "gpu/copy_slots.hpp"

#include <algorithm>

#include "gpu/held_up.hpp"

namespace zerohop::gpu {

CopySlots::CopySlots(const driver::Cuda& cuda, unsigned slots, std::size_t slot_nbytes)
    : cuda_(cuda), pages_(pin_pages(cuda, slots * slot_nbytes)), stream_(make_stream(cuda)) {
  for (unsigned i = 0; i < slots; ++i) slots_.push_back({make_event(cuda)});
}

CopySlots::~CopySlots() {
  if (!has_ended()) leave();
}

bool CopySlots::has_ended() noexcept {
  if (started_ && !slots_.empty()) (void)mark(0);
  for (unsigned i = 0; i < slots_.size(); ++i) {
    if (query(i) != driver::kCudaSuccess) return false;
  }
  return true;
}

int CopySlots::to_host(std::byte* host, std::uint64_t device, std::size_t nbytes) noexcept {
  started_ = true;
  const HeldUp watch("cuMemcpyDtoHAsync");
  return cuda_.copy_to_host(host, device, nbytes, stream_.get());
}

int CopySlots::to_device(std::uint64_t device, const std::byte* host, std::size_t nbytes) noexcept {
  started_ = true;
  const HeldUp watch("cuMemcpyHtoDAsync");
  return cuda_.copy_to_device(device, host, nbytes, stream_.get());
}

int CopySlots::mark(unsigned slot) noexcept {
  const HeldUp watch("cuEventRecord");
  const int error = cuda_.event_record(slots_[slot].event.get(), stream_.get());
  slots_[slot].unmarked = error != driver::kCudaSuccess;
  if (error == driver::kCudaSuccess) started_ = false;
  return error;
}

int CopySlots::query(unsigned slot) noexcept {
  if (slots_[slot].unmarked) {
    if (const int error = mark(slot); error != driver::kCudaSuccess) return error;
  }
  return cuda_.event_query(slots_[slot].event.get());
}

void CopySlots::leave() noexcept {
  for (Slot& slot : slots_) (void)slot.event.release();
  slots_.clear();
  started_ = false;
  (void)stream_.release();
  (void)pages_.release();
}

}  // namespace zerohop::gpu
