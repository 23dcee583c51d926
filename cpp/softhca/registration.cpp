// ibv_reg_mr and its relatives: which memory may be registered, with which rights.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "base/host_memory.hpp"
#include "softhca/context.hpp"
#include "softhca/memory_table.hpp"
#include "softhca/protection_domain.hpp"

namespace zerohop::softhca {
namespace {

constexpr int kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                             IBV_ACCESS_ZERO_BASED;
constexpr int kNeedsLocalWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

std::uintptr_t page_bytes() { return static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)); }

// mincore(2) fails with ENOMEM where nothing is mapped, and faults in no page.
bool is_mapped(std::uintptr_t address, std::size_t nbytes) {
  const std::uintptr_t page = page_bytes();
  std::uintptr_t at = address & ~(page - 1);
  const std::uintptr_t end = address + nbytes;
  std::vector<unsigned char> residency(std::min<std::size_t>((end - at) / page + 1, 65536));
  while (at < end) {
    const std::size_t step = std::min<std::size_t>(end - at, residency.size() * page);
    if (::mincore(reinterpret_cast<void*>(at), step, residency.data()) != 0) return false;
    at += step;
  }
  return true;
}

// Detects a read-only mapping without a signal. Only the first and the last page are checked:
// populating all would commit memory that the program never uses.
bool is_writable(std::uintptr_t address, std::size_t nbytes) {
  const std::uintptr_t page = page_bytes();
  const auto check = [page](std::uintptr_t at) {
    return populate(reinterpret_cast<void*>(at & ~(page - 1)), page);
  };
  int probe = 0;
  const bool supported = check(reinterpret_cast<std::uintptr_t>(&probe));
  return !supported || (check(address) && check(address + nbytes - 1));
}

// 0, or the errno that a real adapter returns, for any memory.
int refuse_range(std::uintptr_t address, std::size_t nbytes, int access) {
  const int known = kKnownAccess | static_cast<int>(IBV_ACCESS_OPTIONAL_RANGE);
  if (nbytes == 0 || address + nbytes < address) return EINVAL;
  if ((access & ~known) != 0) return EOPNOTSUPP;
  return (access & kNeedsLocalWrite) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0 ? EINVAL : 0;
}

// The same for memory that the CPU will access.
int refuse(std::uintptr_t address, std::size_t nbytes, int access) {
  if (const int refusal = refuse_range(address, nbytes, access); refusal != 0) return refusal;
  if (!is_mapped(address, nbytes)) return EFAULT;
  if ((access & IBV_ACCESS_LOCAL_WRITE) != 0 && !is_writable(address, nbytes)) return EFAULT;
  return 0;
}

ibv_mr* enter(ibv_pd* domain, void* address, std::size_t nbytes, std::uint64_t iova, int access,
              std::unique_ptr<MemoryRegion> region = std::make_unique<MemoryRegion>()) {
  Context& context = Context::of(domain->context);
  if (!context.faults.has_room_for_mr(context.memory.size())) throw std::bad_alloc();
  region->context = domain->context;
  region->pd = domain;
  region->addr = address;
  region->length = nbytes;
  region->iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  region->access = access;
  context.memory.add(*region);
  ProtectionDomain::of(domain).users.fetch_add(1, std::memory_order_relaxed);
  return region.release();
}

// Common part of all registration calls: returns NULL with errno if the device or `check`, which
// returns an errno, refuses.
template <typename Check, typename Make>
ibv_mr* attempt(ibv_pd* domain, Check&& check, Make&& make) {
  int refusal = Context::of(domain->context).obstacle();
  if (refusal == 0) refusal = check();
  if (refusal == 0) {
    try {
      return make();
    } catch (...) {  // bad_alloc, or getrandom failed: the C interface has one errno for both
      refusal = ENOMEM;
    }
  }
  errno = refusal;
  return nullptr;
}

// Unmaps, unless a region has taken it over.
struct Mapping {
  void* at = MAP_FAILED;
  std::size_t nbytes = 0;

  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (at != MAP_FAILED) ::munmap(at, nbytes);
  }
};

}  // namespace

ibv_mr* reg_mr_iova2(ibv_pd* domain, void* address, std::size_t nbytes, std::uint64_t iova,
                     unsigned int access) {
  const auto rights = static_cast<int>(access);
  return attempt(
      domain, [&] { return refuse(reinterpret_cast<std::uintptr_t>(address), nbytes, rights); },
      [&] { return enter(domain, address, nbytes, iova, rights); });
}

ibv_mr* reg_mr(ibv_pd* domain, void* address, std::size_t nbytes, int access) {
  return reg_mr_iova2(domain, address, nbytes, reinterpret_cast<std::uint64_t>(address),
                      static_cast<unsigned int>(access));
}

ibv_mr* reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t nbytes, std::uint64_t iova,
                      int fd, int access) {
  Mapping mapping;
  const std::uint64_t lead = offset % page_bytes();
  const auto address = [&] { return static_cast<std::byte*>(mapping.at) + lead; };
  const auto map = [&] {
    if (nbytes == 0) return EINVAL;
    const int protection = PROT_READ | ((access & IBV_ACCESS_LOCAL_WRITE) != 0 ? PROT_WRITE : 0);
    mapping.nbytes = lead + nbytes;
    mapping.at = ::mmap(nullptr, mapping.nbytes, protection, MAP_SHARED, fd,
                        static_cast<off_t>(offset - lead));
    // The exporter of the buffer offers no CPU mapping: this device cannot reach such memory.
    if (mapping.at == MAP_FAILED) return errno == EBADF ? EBADF : EOPNOTSUPP;
    return refuse(reinterpret_cast<std::uintptr_t>(address()), nbytes, access);
  };
  return attempt(domain, map, [&] {
    auto region = std::make_unique<MemoryRegion>();
    region->mapping = mapping.at;
    region->mapping_nbytes = mapping.nbytes;
    ibv_mr* made = enter(domain, address(), nbytes, iova, access, std::move(region));
    mapping.at = MAP_FAILED;
    return made;
  });
}

// The caller and the copier agree on the meaning of the address: the CPU never dereferences it.
ibv_mr* reg_copied_mr(ibv_pd* domain, std::uint64_t address, std::size_t nbytes, int access,
                      std::shared_ptr<driver::Copier> copier) {
  return attempt(
      domain, [&] { return copier ? refuse_range(address, nbytes, access) : EINVAL; },
      [&] {
        auto region = std::make_unique<MemoryRegion>();
        region->copier = std::move(copier);
        return enter(domain, reinterpret_cast<void*>(address), nbytes, address, access,
                     std::move(region));
      });
}

int dereg_mr(ibv_mr* mr) {
  Context& context = Context::of(mr->context);
  if (context.forked()) return 0;  // the parent's object; its memory is freed with this process
  std::unique_ptr<MemoryRegion> region(static_cast<MemoryRegion*>(mr));
  context.memory.remove(*region);
  if (region->mapping != nullptr) ::munmap(region->mapping, region->mapping_nbytes);
  ProtectionDomain::of(mr->pd).users.fetch_sub(1, std::memory_order_relaxed);
  return 0;
}

}  // namespace zerohop::softhca
