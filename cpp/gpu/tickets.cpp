#include "gpu/tickets.hpp"

#include <new>

#include "base/error.hpp"

namespace zerohop::gpu {

Tickets::Tickets(const driver::Cuda& cuda)
    : page_(pin_pages(cuda, kTails * sizeof(Word))), numbers_(kTails, 0) {
  for (std::uint32_t place = 0; place < kTails; ++place) new (words() + place) Word(0);
}

Ticket Tickets::take() {
  const auto place = places_.take();
  if (!place) {
    throw Error("too many transfers are in progress on one GPU: wait for some of them first");
  }
  return {.place = *place, .number = ++numbers_[*place]};
}

}  // namespace zerohop::gpu
