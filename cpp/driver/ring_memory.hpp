// The memory of a direct queue's ring and of the words beside it: whole zeroed pages, so that each
// part can be page-locked and mapped into a GPU separately.
#pragma once

#include <cstddef>
#include <span>

namespace zerohop::driver {

class RingMemory {
 public:
  // A ring of nbytes, at `ring`, or in pages of its own if null; and `pages` single pages. Throws
  // Error.
  RingMemory(std::size_t nbytes, std::byte* ring, std::size_t pages);
  ~RingMemory();
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  std::byte* ring() const noexcept { return ring_; }
  // All whole pages: those of the ring, unless it lies elsewhere, then the single ones.
  std::span<std::byte> all() const noexcept { return {pages_ - own_ring_nbytes_, nbytes_}; }
  std::byte* page(std::size_t number) const noexcept { return pages_ + number * page_nbytes_; }

 private:
  std::size_t page_nbytes_;
  std::size_t own_ring_nbytes_;  // 0 if it lies elsewhere
  std::size_t nbytes_;           // of the mapping
  std::byte* ring_;
  std::byte* pages_;
};

}  // namespace zerohop::driver
