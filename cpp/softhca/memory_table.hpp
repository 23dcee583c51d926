// The registered memory of one device context, found by its 32-bit key.
//
// Every access to registered memory needs a pin, and no pin lasts longer than one I/O step (one
// non-blocking system call, or one copy; for memory that needs a Bounce, one turn of a queue pair).
// ibv_dereg_mr removes the key first and then waits until the pins are released: when it returns,
// no byte of that memory will be accessed again, and every later step with the key is refused.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/locks.hpp"
#include "driver/copier.hpp"

namespace zerohop::softhca {

// The place of registered bytes. The CPU may access them unless there is a copier.
struct Place {
  std::byte* at = nullptr;
  const std::shared_ptr<driver::Copier>* copier = nullptr;  // valid as long as the pin

  explicit operator bool() const noexcept { return at != nullptr; }
  friend Place operator+(const Place& place, std::size_t nbytes) noexcept {
    return {place.at + nbytes, place.copier};
  }
};

struct MemoryRegion : ibv_mr {
  std::uint64_t iova = 0;  // the address of the first byte in work requests
  int access = 0;
  void* mapping = nullptr;  // made by reg_dmabuf_mr; unmapped with the region
  std::size_t mapping_nbytes = 0;
  std::shared_ptr<driver::Copier> copier;  // for memory that the CPU cannot access
  std::atomic<std::uint32_t> pins{0};

  bool covers(std::uint64_t address, std::uint64_t nbytes) const noexcept {
    return address >= iova && nbytes <= length && address - iova <= length - nbytes;
  }
  Place at(std::uint64_t address) const noexcept {
    return {static_cast<std::byte*>(addr) + (address - iova), copier ? &copier : nullptr};
  }
};

// The pins of one I/O step, released together. At most kMost distinct regions.
class Pins {
 public:
  static constexpr std::size_t kMost = 64;
  Pins() = default;
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;
  ~Pins() { release(); }

  void release() noexcept {
    while (count_ > 0) release(*regions_[--count_]);
  }
  // Takes over the pins of `other`; false if there is no room for all of them.
  bool adopt(Pins& other) noexcept;

 private:
  friend class MemoryTable;
  static void release(MemoryRegion& region) noexcept;
  std::array<MemoryRegion*, kMost> regions_;  // the first count_ are set
  std::size_t count_ = 0;
};

class MemoryTable {
 public:
  // Adds the region under a fresh random key, which becomes its lkey and rkey.
  void add(MemoryRegion& region);

  // Removes the region and waits until no I/O step uses it.
  void remove(MemoryRegion& region) noexcept;

  // The place of the bytes [address, address + nbytes) of the region `key` in this process, pinned
  // until `pins` releases them. Null if the key, protection domain, bounds or access do not allow
  // it, or if `pins` is full. `access` lists the IBV_ACCESS_* bits that the region must have.
  Place pin(std::uint32_t key, const ibv_pd* domain, std::uint64_t address, std::uint64_t nbytes,
            int access, Pins& pins) noexcept;

  // The same check without a pin.
  bool allows(std::uint32_t key, const ibv_pd* domain, std::uint64_t address, std::uint64_t nbytes,
              int access) noexcept;

  std::size_t size() const noexcept;

 private:
  mutable Mutex<Rank::softhca_memory> mutex_;
  std::unordered_map<std::uint32_t, MemoryRegion*> regions_;
};

// The members of driver::Verbs.
ibv_mr* reg_mr(ibv_pd* domain, void* address, std::size_t nbytes, int access);
ibv_mr* reg_mr_iova2(ibv_pd* domain, void* address, std::size_t nbytes, std::uint64_t iova,
                     unsigned int access);
ibv_mr* reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t nbytes, std::uint64_t iova,
                      int fd, int access);
ibv_mr* reg_copied_mr(ibv_pd* domain, std::uint64_t address, std::size_t nbytes, int access,
                      std::shared_ptr<driver::Copier> copier);
int dereg_mr(ibv_mr* mr);

}  // namespace zerohop::softhca
