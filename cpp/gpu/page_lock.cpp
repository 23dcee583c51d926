#include "gpu/page_lock.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/host_memory.hpp"
#include "base/locks.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/allocation.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {
namespace {

const std::uint64_t kHostPage = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));

// Locked memory cannot be swapped out: locking more than half would starve other processes.
std::uint64_t most_nbytes() {
  static const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  return pages * kHostPage / 2;
}

constexpr std::uint64_t down(std::uint64_t at, std::uint64_t step) { return at / step * step; }
constexpr std::uint64_t up(std::uint64_t at, std::uint64_t step) {
  return down(at + step - 1, step);
}

// Write-combined memory has a different address on the GPU (CUDA Driver API, unified addressing).
void check_address(const driver::Cuda& cuda, std::uint64_t address) {
  driver::CudaPointerAttribute attribute = driver::kCudaAddressOnGpu;
  std::uint64_t on_gpu = 0;
  void* value = &on_gpu;
  driver::check_cuda(cuda, cuda.pointer_get_attributes(1, &attribute, &value, address),
                     "cuPointerGetAttributes");
  if (on_gpu == address) return;
  throw RouteUnavailable("its address on GPUs differs from the CPU's (write-combined memory?)");
}

// The end of what the program has locked from `address` on; 0: the program has not locked it.
std::uint64_t end_by_program(const driver::Cuda& cuda, std::uint64_t address, std::uint64_t last) {
  const Allocation first = find_allocation(cuda, address);
  if (first.kind != MemoryKind::pinned) return 0;
  check_address(cuda, address);
  if (first.extent.end > address) return first.extent.end;
  const Allocation other = find_allocation(cuda, last);
  const bool same = other.kind == MemoryKind::pinned && other.buffer_id == first.buffer_id;
  if (same && first.buffer_id != 0) return last + 1;
  throw RouteUnavailable("the driver does not say how far the program has page-locked it");
}

constexpr const char* kHowToMapRegisters =
    "; GPUs write to registers of an adapter if the module nvidia is loaded with the option "
    "NVreg_RegistryDwords=\"PeerMappingOverride=1;\" (in /etc/modprobe.d, then update-initramfs "
    "and "
    "a reboot), and if no IOMMU translates between the two (kernel parameter iommu=pt)";

void map_registers(const driver::Cuda& cuda, void* begin, std::size_t nbytes) {
  try {
    driver::check_cuda(
        cuda,
        cuda.host_register(begin, nbytes,
                           driver::kCudaRegisterPortable | driver::kCudaRegisterMapped |
                               driver::kCudaRegisterIoMemory),
        "cuMemHostRegister");
  } catch (const CudaError& error) {
    throw CudaError(std::string(error.what()) + kHowToMapRegisters, error.code());
  }
}

// Returns whether the pages are read-only.
bool lock_pages(const Device& device, const Extent& pages, PageUse use) {
  const driver::Cuda& cuda = device.cuda();
  void* const begin = reinterpret_cast<void*>(pages.begin);
  const std::uint64_t nbytes = pages.end - pages.begin;
  constexpr unsigned flags = driver::kCudaRegisterPortable | driver::kCudaRegisterMapped;
  // Registers of an emulated adapter may be memory; those of a PCIe device never are.
  if (use == PageUse::registers && !populate(begin, nbytes)) {
    map_registers(cuda, begin, nbytes);
    return false;
  }
  const driver::CudaResult result = cuda.host_register(begin, nbytes, flags);
  if (result == driver::kCudaErrorAlreadyRegistered) {
    throw RouteUnavailable(
        "the program has page-locked a part of those pages (cudaHostRegister): have it lock all "
        "of the array");
  }
  const bool again = result != driver::kCudaSuccess && use == PageUse::read;
  if (again && cuda.host_register(begin, nbytes, flags | driver::kCudaRegisterReadOnly) ==
                   driver::kCudaSuccess) {
    return true;
  }
  driver::check_cuda(cuda, result,
                     "cuMemHostRegister of " + std::to_string(nbytes) + " bytes of the host");
  return false;
}

}  // namespace

struct PageLock::Entry {
  enum class State { beginning, there, ending };
  State state = State::beginning;
  Extent extent;
  bool read_only = false;
  int users = 0;
  int leavers = 0;  // threads that check whether it must end
  std::shared_ptr<const Device> device;
  std::shared_ptr<const void> owner;
};

class PageLock::Registry {
 public:
  static Registry& of_process() {
    static auto* const registry = new Registry;  // other threads may outlive main()
    return *registry;
  }

  // Returns an existing entry with one more user, or a new one that the caller must begin.
  Entry& enter(std::uint64_t address, const Wish& wish, const Deadline& deadline) {
    std::unique_lock lock(mutex_);
    for (;;) {
      Entry* const known = find(address);
      if (known == nullptr) return make(address, wish);
      if (known->state == Entry::State::there) {
        if (known->read_only && wish.use != PageUse::read) {
          throw RouteUnavailable("its pages are page-locked to be read only");
        }
        ++known->users;
        return *known;
      }
      if (deadline.passed()) {
        throw TransferTimeout("another thread is locking or unlocking its pages");
      }
      changed_.wait_until(lock, deadline.at());
    }
  }
  void begun(Entry& entry, bool read_only) {
    const std::lock_guard lock(mutex_);
    entry.read_only = read_only;
    entry.state = Entry::State::there;
    changed_.notify_all();
  }
  // Returns the entry's content, to be destroyed without the lock.
  Entry remove(Entry& entry) {
    const std::lock_guard lock(mutex_);
    nbytes_ -= entry.extent.end - entry.extent.begin;
    Entry last = std::move(entry);
    entries_.erase(last.extent.begin);
    changed_.notify_all();
    return last;
  }
  bool leave(Entry& entry) {  // true: the caller must check ends()
    const std::lock_guard lock(mutex_);
    if (--entry.users > 0) return false;
    ++entry.leavers;
    return true;
  }
  // Whether the caller must end it; else it has a user again, or another thread checks later.
  bool ends(Entry& entry) {
    const std::lock_guard lock(mutex_);
    if (--entry.leavers > 0 || entry.users > 0) return false;
    entry.state = Entry::State::ending;
    return true;
  }
  std::uint64_t nbytes() {
    const std::lock_guard lock(mutex_);
    return nbytes_;
  }

 private:
  // Call with the mutex held:
  Entry* find(std::uint64_t address) {
    const auto after = entries_.upper_bound(address);
    if (after == entries_.begin()) return nullptr;
    Entry& before = std::prev(after)->second;
    return address < before.extent.end ? &before : nullptr;
  }
  Entry& make(std::uint64_t address, const Wish& wish) {
    Extent pages{std::max(down(wish.whole.begin, kHostPage), down(address, kBlock)),
                 std::min(up(wish.whole.end, kHostPage), down(address, kBlock) + kBlock)};
    const auto after = entries_.upper_bound(address);
    if (after != entries_.end()) pages.end = std::min(pages.end, after->first);
    if (after != entries_.begin()) {
      pages.begin = std::max(pages.begin, std::prev(after)->second.extent.end);
    }
    const std::uint64_t nbytes = pages.end - pages.begin;
    if (nbytes_ + nbytes > most_nbytes()) {
      throw RouteUnavailable(
          "more than half of this host's memory would be page-locked by this process: keep less "
          "of it registered, or have the program lock it (cudaHostAlloc, pin_memory())");
    }
    nbytes_ += nbytes;
    Entry& entry = entries_[pages.begin];
    entry.extent = pages;
    entry.users = 1;
    entry.device = wish.device;
    entry.owner = wish.owner;
    return entry;
  }

  Mutex<Rank::page_locks> mutex_;  // guards all members below; never held during a driver call
  Condition changed_;
  std::map<std::uint64_t, Entry> entries_;  // by begin
  std::uint64_t nbytes_ = 0;
};

PageLock::Found PageLock::around(std::uint64_t address, const Wish& wish,
                                 const Deadline& deadline) {
  if (!wish.device->facts().reaches_registered) {
    throw RouteUnavailable(wish.device->facts().device_name() +
                           " has other addresses for host memory than the CPU");
  }
  Registry& registry = Registry::of_process();
  Entry& entry = registry.enter(address, wish, deadline);
  try {
    // Asked while the entry keeps this module's threads away: a lock found now is the program's.
    if (entry.state == Entry::State::beginning) {
      const DeviceGuard guard(*wish.device);
      const std::uint64_t end = end_by_program(wish.device->cuda(), address, wish.whole.end - 1);
      if (end != 0) {
        registry.remove(entry);
        return {.lock = nullptr, .extent = {address, std::min(end, wish.whole.end)}};
      }
      registry.begun(entry, lock_pages(*wish.device, entry.extent, wish.use));
    }
  } catch (...) {
    registry.remove(entry);
    throw;
  }
  return {.lock = std::shared_ptr<const PageLock>(new PageLock(entry, entry.extent)),
          .extent = entry.extent};
}

PageLock::PageLock(Entry& entry, const Extent& extent)
    : entry_(entry), extent_(extent), generation_(fork_generation()) {}

PageLock::~PageLock() {
  if (generation_ != fork_generation()) return;  // CUDA does not survive fork()
  if (!Registry::of_process().leave(entry_)) return;
  run_apart(entry_.device->ordinal(), [&entry = entry_] {
    Registry& registry = Registry::of_process();
    if (!registry.ends(entry)) return;
    try {
      const DeviceGuard guard(*entry.device);
      (void)entry.device->cuda().host_unregister(reinterpret_cast<void*>(entry.extent.begin));
    } catch (const CudaError&) {
      // The context is gone, as at process exit.
    }
    registry.remove(entry);
  });
}

std::uint64_t PageLock::all_nbytes() { return Registry::of_process().nbytes(); }

}  // namespace zerohop::gpu
