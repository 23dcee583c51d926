#include "driver/ring_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/scarcity.hpp"

namespace zerohop::driver {

RingMemory::RingMemory(std::size_t nbytes, std::byte* ring, std::size_t pages)
    : page_nbytes_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
      own_ring_nbytes_(ring != nullptr ? 0
                                       : (nbytes + page_nbytes_ - 1) / page_nbytes_ * page_nbytes_),
      nbytes_(own_ring_nbytes_ + pages * page_nbytes_) {
  void* mapping =
      ::mmap(nullptr, nbytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw_scarce("cannot map the ring of a queue", errno);
  // A forked child would share the pages until either process writes to them. The process that then
  // gets copies must not be the one whose pages are mapped into a GPU.
  ::madvise(mapping, nbytes_, MADV_DONTFORK);
  pages_ = static_cast<std::byte*>(mapping) + own_ring_nbytes_;
  ring_ = ring != nullptr ? ring : static_cast<std::byte*>(mapping);
}

RingMemory::~RingMemory() { ::munmap(pages_ - own_ring_nbytes_, nbytes_); }

}  // namespace zerohop::driver
