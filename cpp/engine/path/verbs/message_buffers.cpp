#include "engine/path/verbs/message_buffers.hpp"

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
            " bytes for messages (fewer message_slots or message_bytes take less)",
        errno);
  }
  return static_cast<std::byte*>(pages);
}

}  // namespace

void MessageBuffers::Unmap::operator()(std::byte* bytes) const noexcept { ::munmap(bytes, nbytes); }

MessageBuffers::MessageBuffers(std::uint32_t count, std::uint32_t buffer_nbytes)
    : buffer_nbytes_(buffer_nbytes),
      nbytes_(std::size_t{count} * buffer_nbytes),
      bytes_(map_pages(nbytes_), Unmap{nbytes_}) {}

void MessageBuffers::add_device(const std::shared_ptr<rdma::ProtectionDomain>& domain) {
  regions_.push_back(
      domain ? rdma::MemoryRegion::create(domain, bytes_.get(), nbytes_, IBV_ACCESS_LOCAL_WRITE)
             : nullptr);
}

}  // namespace zerohop::engine
