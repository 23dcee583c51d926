#include "engine/path/verbs/path_buffers.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "base/scarcity.hpp"

namespace zerohop::engine {
namespace {

std::byte* map_pages(std::size_t nbytes) {
  void* pages = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    throw_scarce<RegistrationError>(
        "cannot map " + std::to_string(nbytes) +
            " bytes for messages of a Peer (fewer message_slots or message_bytes take less)",
        errno);
  }
  return static_cast<std::byte*>(pages);
}

}  // namespace

void PathBuffers::Unmap::operator()(std::byte* slots) const noexcept { ::munmap(slots, nbytes); }

PathBuffers::PathBuffers(std::shared_ptr<rdma::ProtectionDomain> domain,
                         const MessageWindow& window, std::uint32_t results)
    : window_(window),
      results_(results),
      slots_(map_pages(window.all_nbytes()), Unmap{window.all_nbytes()}),
      words_(std::make_unique<std::uint64_t[]>(results)) {
  slots_region_ =
      rdma::MemoryRegion::create(domain, slots_.get(), window.all_nbytes(), IBV_ACCESS_LOCAL_WRITE);
  words_region_ = rdma::MemoryRegion::create(domain, words_.get(), results * sizeof(std::uint64_t),
                                             IBV_ACCESS_LOCAL_WRITE);
}

}  // namespace zerohop::engine
