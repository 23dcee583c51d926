// Registers memory, and finds the registration that already covers it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/layout.hpp"
#include "rdma/memory_region.hpp"

namespace zerohop::engine {

// The IBV_ACCESS_* bits of memory that peers may read, and write if `writable`, by atomics too
// where the device has them.
int access_bits(const rdma::Device& device, bool writable) noexcept;

// A region is known here only while some Memory or Transfer holds it, and each of those holds the
// array too: an address that was freed and used again can never meet a stale registration.
class Registrations {
 public:
  explicit Registrations(std::shared_ptr<rdma::ProtectionDomain> domain)
      : domain_(std::move(domain)) {}

  const std::shared_ptr<rdma::ProtectionDomain>& domain() const noexcept { return domain_; }

  // The region over `extent` with the right to be read, and written if `writable`. With `shared` a
  // region that covers the extent with the same rights is used again; its keys then reach all of
  // it. Without, the keys reach the extent and nothing more. Null for an empty extent. Throws
  // RegistrationError.
  std::shared_ptr<rdma::MemoryRegion> find_or_create(const Extent& extent, bool writable,
                                                     bool shared);

 private:
  std::shared_ptr<rdma::MemoryRegion> find(const Extent& extent, int access);
  void forget_expired();

  std::shared_ptr<rdma::ProtectionDomain> domain_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<rdma::MemoryRegion>> by_address_;
  std::size_t next_sweep_ = 64;  // entries at which expired ones are swept out
};

}  // namespace zerohop::engine
