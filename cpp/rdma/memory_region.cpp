#include "rdma/memory_region.hpp"

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/error.hpp"
#include "base/scarcity.hpp"
#include "driver/verbs_call.hpp"

namespace zerohop::rdma {
namespace {

// On iWARP the sink of an RDMA read must be writable by the peer, whose answer is a tagged message
// like a write. The read request carries the sink's key (RFC 5040), so the peer learns it.
int sink_access(const Device& device, int access) {
  const bool sink = device.is_iwarp() && (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  return sink ? access | IBV_ACCESS_REMOTE_WRITE : access;
}

constexpr int kRemoteModify = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

// Cause and remedy; the errno values are those of man ibv_reg_mr and of the kernel behind it.
std::string advice(const Device& device, int error_number, int access) {
  switch (error_number) {
    case ENOMEM:
      return "the pages cannot be locked, or there is no region left on " +
             device.name_with("max_mr", &ibv_device_attr::max_mr) +
             "; the limit of locked memory (`ulimit -l`) is " + locked_memory_limit() +
             ": raise it, free memory, or close what else is registered";
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
  // Only reg_mr_iova2 drops the optional bits (relaxed ordering) that this kernel does not support.
  if (verbs.reg_mr_iova2 != nullptr) {
    return verbs.reg_mr_iova2(domain.handle(), address, nbytes,
                              reinterpret_cast<std::uintptr_t>(address),
                              static_cast<unsigned>(access));
  }
  return verbs.reg_mr(domain.handle(), address, nbytes, access & ~IBV_ACCESS_OPTIONAL_RANGE);
}

// Some adapters silently register only the first max_mr_size bytes; for others a length of 0 means
// "all of the address space".
void check_size(const Device& device, const std::string& what, std::uint64_t nbytes) {
  const std::uint64_t most = device.attributes().max_mr_size;
  if (nbytes > 0 && nbytes <= most) return;
  throw RegistrationError(
      what + ": " + device.name() + " allows 1 to " + std::to_string(most) + " bytes in one region",
      EINVAL);
}

std::string advice_for_dmabuf(int error_number) {
  switch (error_number) {
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
    case ENOSYS:
      return "registering a dma-buf takes Linux 5.12 and an adapter whose driver offers it";
    case EBADF: return "the descriptor is no dma-buf";
    case ENOMEM: return "the exporter's window (BAR1 of a GPU) or the adapter's memory is used up";
    default: return "the device refuses the dma-buf or the access bits";
  }
}

ibv_mr* register_dmabuf(const ProtectionDomain& domain, const DmabufRange& range, int access,
                        const driver::Mlx5dv* data_direct) {
  if (data_direct != nullptr) {
    return data_direct->reg_dmabuf_mr(domain.handle(), range.offset, range.nbytes, range.address,
                                      range.fd, access, driver::kMlx5DataDirect);
  }
  if (domain.verbs().reg_dmabuf_mr == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  return domain.verbs().reg_dmabuf_mr(domain.handle(), range.offset, range.nbytes, range.address,
                                      range.fd, access);
}

}  // namespace

std::shared_ptr<MemoryRegion> MemoryRegion::create(std::shared_ptr<ProtectionDomain> domain,
                                                   void* address, std::size_t nbytes, int access) {
  const std::string what = describe(address, nbytes, access);
  check_size(domain->device(), what, nbytes);
  Handle handle(register_range(*domain, address, nbytes, sink_access(domain->device(), access)),
                Deregister{{&domain->verbs()}});
  if (handle == nullptr) {
    const int error_number = errno;  // building the message may change it
    throw RegistrationError(
        errno_message(what, error_number) + "; " + advice(domain->device(), error_number, access),
        error_number);
  }
  return std::shared_ptr<MemoryRegion>(new MemoryRegion(
      std::move(domain), std::move(handle), reinterpret_cast<std::uintptr_t>(address), access));
}

std::shared_ptr<MemoryRegion> MemoryRegion::create_dmabuf(std::shared_ptr<ProtectionDomain> domain,
                                                          const DmabufRange& range, int access,
                                                          const driver::Mlx5dv* data_direct) {
  const std::string what =
      describe(reinterpret_cast<void*>(range.address), range.nbytes, access) + " as a dma-buf";
  check_size(domain->device(), what, range.nbytes);
  Handle handle(register_dmabuf(*domain, range, sink_access(domain->device(), access), data_direct),
                Deregister{{&domain->verbs()}});
  if (handle == nullptr) {
    const int error_number = errno;
    throw RegistrationError(
        errno_message(what, error_number) + "; " + advice_for_dmabuf(error_number), error_number);
  }
  return std::shared_ptr<MemoryRegion>(
      new MemoryRegion(std::move(domain), std::move(handle), range.address, access));
}

std::shared_ptr<MemoryRegion> MemoryRegion::create_copied(std::shared_ptr<ProtectionDomain> domain,
                                                          std::uint64_t address, std::size_t nbytes,
                                                          int access,
                                                          std::shared_ptr<driver::Copier> copier) {
  const driver::Verbs& verbs = domain->verbs();
  const std::string what =
      describe(reinterpret_cast<void*>(address), nbytes, access) + " by copies";
  check_size(domain->device(), what, nbytes);
  Handle handle(verbs.reg_copied_mr(domain->handle(), address, nbytes, access, std::move(copier)),
                Deregister{{&verbs}});
  if (handle == nullptr) {
    const int error_number = errno;
    throw RegistrationError(
        errno_message(what, error_number) + "; " + advice(domain->device(), error_number, access),
        error_number);
  }
  return std::shared_ptr<MemoryRegion>(
      new MemoryRegion(std::move(domain), std::move(handle), address, access));
}

MemoryRegion::MemoryRegion(std::shared_ptr<ProtectionDomain> domain, Handle handle,
                           std::uint64_t address, int access)
    : domain_(std::move(domain)), handle_(std::move(handle)), address_(address), access_(access) {}

void MemoryRegion::Deregister::operator()(ibv_mr* mr) const noexcept {
  if (is_this_process()) driver::report_errno(verbs->dereg_mr(mr), "ibv_dereg_mr");
}

}  // namespace zerohop::rdma
