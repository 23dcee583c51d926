#include "gpu/tickets.hpp"

#include <new>
#include <numeric>

#include "base/error.hpp"

namespace zerohop::gpu {

Tickets::Tickets(const driver::Cuda& cuda)
    : page_(pin_pages(cuda, kTails * sizeof(Word))), free_(kTails), numbers_(kTails, 0) {
  for (std::uint32_t place = 0; place < kTails; ++place) new (words() + place) Word(0);
  std::iota(free_.rbegin(), free_.rend(), 0);
}

Ticket Tickets::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    throw Error("too many transfers are under way on one GPU: wait for some of them first");
  }
  const std::uint32_t place = free_.back();
  free_.pop_back();
  return {.place = place, .number = ++numbers_[place]};
}

void Tickets::give_back(const Ticket& ticket) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(ticket.place);  // it never grows beyond its first size
}

}  // namespace zerohop::gpu
