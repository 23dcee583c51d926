#include "rdma/memory_region.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/error.hpp"
#include "driver/verbs_call.hpp"

namespace zerohop::rdma {
namespace {

constexpr int kRemoteModify = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

std::string locked_memory_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "none";
  return std::to_string(limit.rlim_cur) + " bytes";
}

// Cause and remedy; the errno values are those of man ibv_reg_mr and of the kernel behind it.
std::string advice(int error_number, int access) {
  switch (error_number) {
    case ENOMEM:
      return "the pages cannot be locked; the limit of locked memory (`ulimit -l`) is " +
             locked_memory_limit() + ": raise it, or free memory";
    case EFAULT:
    case EACCES:
    case EPERM:
      return (access & IBV_ACCESS_LOCAL_WRITE) != 0
                 ? "part of the range is not mapped, or is mapped read-only: register it without "
                   "write access, or pass a writable array"
                 : "part of the range is not mapped in this process";
    case EINVAL:
      return (access & kRemoteModify) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0
                 ? "IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC also need "
                   "IBV_ACCESS_LOCAL_WRITE"
                 : "the device refuses the range or the access bits";
    case EOPNOTSUPP: return "the device cannot register this kind of memory: use a host array";
    default: return "the device refuses the registration";
  }
}

std::string describe(const void* address, std::size_t nbytes, int access) {
  char text[96];
  std::snprintf(text, sizeof text, "cannot register %zu bytes at %p with access 0x%x", nbytes,
                address, static_cast<unsigned>(access));
  return text;
}

ibv_mr* register_range(const ProtectionDomain& domain, void* address, std::size_t nbytes,
                       int access) {
  const driver::Verbs& verbs = domain.verbs();
  if ((access & IBV_ACCESS_OPTIONAL_RANGE) == 0) {
    return verbs.reg_mr(domain.handle(), address, nbytes, access);
  }
  // Only reg_mr_iova2 drops the optional bits (relaxed ordering) that this kernel does not know.
  if (verbs.reg_mr_iova2 != nullptr) {
    return verbs.reg_mr_iova2(domain.handle(), address, nbytes,
                              reinterpret_cast<std::uintptr_t>(address),
                              static_cast<unsigned>(access));
  }
  return verbs.reg_mr(domain.handle(), address, nbytes, access & ~IBV_ACCESS_OPTIONAL_RANGE);
}

}  // namespace

std::shared_ptr<MemoryRegion> MemoryRegion::create(std::shared_ptr<ProtectionDomain> domain,
                                                   void* address, std::size_t nbytes, int access) {
  // Some adapters register only the first max_mr_size bytes, silently; a length of 0 means "all of
  // the address space" to others.
  const std::uint64_t most = domain->device().attributes().max_mr_size;
  if (nbytes == 0 || nbytes > most) {
    throw RegistrationError(describe(address, nbytes, access) + ": " + domain->device().name() +
                                " allows 1 to " + std::to_string(most) + " bytes in one region",
                            EINVAL);
  }
  Handle handle(register_range(*domain, address, nbytes, access), Deregister{{&domain->verbs()}});
  if (handle == nullptr) {
    const int error_number = errno;  // building the message may change it
    throw RegistrationError(errno_message(describe(address, nbytes, access), error_number) + "; " +
                                advice(error_number, access),
                            error_number);
  }
  return std::shared_ptr<MemoryRegion>(
      new MemoryRegion(std::move(domain), std::move(handle), access));
}

MemoryRegion::MemoryRegion(std::shared_ptr<ProtectionDomain> domain, Handle handle, int access)
    : domain_(std::move(domain)), handle_(std::move(handle)), access_(access) {}

void MemoryRegion::Deregister::operator()(ibv_mr* mr) const noexcept {
  if (is_this_process()) driver::report_errno(verbs->dereg_mr(mr), "ibv_dereg_mr");
}

}  // namespace zerohop::rdma
