// A registered range of memory: the adapter may access it while this object lives.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "driver/mlx5dv.hpp"
#include "rdma/protection_domain.hpp"

namespace zerohop::rdma {

// A part of a dma-buf, and the address under which keys name it. Both begin at the same offset in
// their pages.
struct DmabufRange {
  int fd = -1;               // the caller's; may be closed once registered
  std::uint64_t offset = 0;  // in the dma-buf
  std::uint64_t nbytes = 0;  // > 0
  std::uint64_t address = 0;
};

class MemoryRegion {
 public:
  // Registers [address, address + nbytes) with the IBV_ACCESS_* bits in `access`. nbytes > 0.
  // Throws RegistrationError (errno kept) with the cause: locked-memory limit, read-only mapping,
  // ... The caller keeps the memory alive.
  static std::shared_ptr<MemoryRegion> create(std::shared_ptr<ProtectionDomain> domain,
                                              void* address, std::size_t nbytes, int access);

  // Registers a part of a dma-buf; otherwise as above. data_direct: the table for registration with
  // the adapter's Data Direct function, null for the usual way.
  static std::shared_ptr<MemoryRegion> create_dmabuf(std::shared_ptr<ProtectionDomain> domain,
                                                     const DmabufRange& range, int access,
                                                     const driver::Mlx5dv* data_direct = nullptr);

  // Registers memory that the CPU cannot access, on a software device that copies it. Requires
  // Verbs::reg_copied_mr. Throws as above.
  static std::shared_ptr<MemoryRegion> create_copied(std::shared_ptr<ProtectionDomain> domain,
                                                     std::uint64_t address, std::size_t nbytes,
                                                     int access,
                                                     std::shared_ptr<driver::Copier> copier);

  std::uint32_t lkey() const noexcept { return handle_->lkey; }
  // A holder of this key can access the memory until it is deregistered, so the object records that
  // the key was requested.
  std::uint32_t rkey() const noexcept {
    exposed_.store(true, std::memory_order_relaxed);
    return handle_->rkey;
  }
  bool exposed() const noexcept { return exposed_.load(std::memory_order_relaxed); }
  std::uint64_t address() const noexcept { return address_; }
  std::size_t nbytes() const noexcept { return handle_->length; }
  int access() const noexcept { return access_; }

 private:
  struct Deregister : Maker {
    void operator()(ibv_mr* mr) const noexcept;
  };
  using Handle = std::unique_ptr<ibv_mr, Deregister>;
  MemoryRegion(std::shared_ptr<ProtectionDomain> domain, Handle handle, std::uint64_t address,
               int access);

  std::shared_ptr<ProtectionDomain> domain_;
  Handle handle_;
  std::uint64_t address_;
  int access_;
  mutable std::atomic<bool> exposed_{false};
};

}  // namespace zerohop::rdma
