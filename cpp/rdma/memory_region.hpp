// A registered range of memory: the adapter may touch it while this object lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "rdma/protection_domain.hpp"

namespace zerohop::rdma {

class MemoryRegion {
 public:
  // Registers [address, address + nbytes) with the IBV_ACCESS_* bits in `access`. nbytes > 0.
  // Throws RegistrationError (errno kept) with the cause: locked-memory limit, read-only mapping,
  // ... The caller keeps the memory itself alive.
  static std::shared_ptr<MemoryRegion> create(std::shared_ptr<ProtectionDomain> domain,
                                              void* address, std::size_t nbytes, int access);

  std::uint32_t lkey() const noexcept { return handle_->lkey; }
  std::uint32_t rkey() const noexcept { return handle_->rkey; }
  std::uint64_t address() const noexcept { return reinterpret_cast<std::uint64_t>(handle_->addr); }
  std::size_t nbytes() const noexcept { return handle_->length; }
  int access() const noexcept { return access_; }

 private:
  struct Deregister : Maker {
    void operator()(ibv_mr* mr) const noexcept;
  };
  using Handle = std::unique_ptr<ibv_mr, Deregister>;
  MemoryRegion(std::shared_ptr<ProtectionDomain> domain, Handle handle, int access);

  std::shared_ptr<ProtectionDomain> domain_;
  Handle handle_;
  int access_;
};

}  // namespace zerohop::rdma
