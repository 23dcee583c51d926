#include "fake_vmm.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <utility>

namespace zerohop::testing {

using driver::CudaAddress;
using driver::CudaResult;
using driver::kCudaErrorInvalidValue;
using driver::kCudaSuccess;

namespace {

bool has(const std::map<CudaAddress, std::uint64_t>& ranges, CudaAddress begin,
         std::uint64_t nbytes) {
  const auto found = ranges.find(begin);
  return found != ranges.end() && found->second == nbytes;
}

// The range that contains [begin, begin + nbytes) was added as a whole.
bool lies_in(const std::map<CudaAddress, std::uint64_t>& ranges, CudaAddress begin,
             std::uint64_t nbytes) {
  const auto after = ranges.upper_bound(begin);
  if (after == ranges.begin()) return false;
  const auto& [from, size] = *std::prev(after);
  return begin + nbytes <= from + size;
}

// Adjacent ranges cover [begin, begin + nbytes).
bool covered(const std::map<CudaAddress, std::uint64_t>& ranges, CudaAddress begin,
             std::uint64_t nbytes) {
  const CudaAddress end = begin + nbytes;
  while (begin < end) {
    const auto found = ranges.find(begin);
    if (found == ranges.end()) return false;
    begin += found->second;
  }
  return begin == end;
}

}  // namespace

CudaResult FakeVmm::create(driver::CudaAllocation* allocation, std::uint64_t nbytes,
                           const driver::CudaMemoryProperties& wanted) {
  const std::lock_guard guard(mutex_);
  if (nbytes == 0 || nbytes % kPage != 0) return kCudaErrorInvalidValue;
  if (nbytes > free_nbytes) return driver::kCudaErrorOutOfMemory;
  free_nbytes -= nbytes;
  properties = wanted;
  *allocation = ++last_;
  physical_[last_] = nbytes;
  return kCudaSuccess;
}

CudaResult FakeVmm::export_fd(int* fd, driver::CudaAllocation allocation) {
  const std::lock_guard guard(mutex_);
  const auto found = physical_.find(allocation);
  if (found == physical_.end()) return kCudaErrorInvalidValue;
  *fd = ::memfd_create("fake physical memory", MFD_CLOEXEC);
  return ::ftruncate(*fd, static_cast<off_t>(found->second)) == 0 ? kCudaSuccess : 999;
}

CudaResult FakeVmm::import_fd(driver::CudaAllocation* allocation, int fd) {
  const std::lock_guard guard(mutex_);
  struct stat facts{};
  if (::fstat(fd, &facts) != 0) return kCudaErrorInvalidValue;
  *allocation = ++last_;
  physical_[last_] = static_cast<std::uint64_t>(facts.st_size);
  free_nbytes -= physical_[last_];  // as release() counts
  return kCudaSuccess;
}

CudaResult FakeVmm::release(driver::CudaAllocation allocation) {
  const std::lock_guard guard(mutex_);
  const auto found = physical_.find(allocation);
  if (found == physical_.end()) return kCudaErrorInvalidValue;
  free_nbytes += found->second;
  physical_.erase(found);
  return kCudaSuccess;
}

CudaResult FakeVmm::reserve(CudaAddress* address, std::uint64_t nbytes) {
  const std::lock_guard guard(mutex_);
  *address = copies_.allocate(nbytes, kGarbage);
  reserved_[*address] = nbytes;
  return kCudaSuccess;
}

CudaResult FakeVmm::free_addresses(CudaAddress address, std::uint64_t nbytes) {
  const std::lock_guard guard(mutex_);
  const auto within = mapped_.lower_bound(address);
  const bool in_use = within != mapped_.end() && within->first < address + nbytes;
  if (!has(reserved_, address, nbytes) || in_use) return kCudaErrorInvalidValue;
  reserved_.erase(address);
  copies_.release(address);
  return kCudaSuccess;
}

CudaResult FakeVmm::map(CudaAddress address, std::uint64_t nbytes,
                        driver::CudaAllocation allocation) {
  const std::lock_guard guard(mutex_);
  const auto found = physical_.find(allocation);
  if (found == physical_.end() || found->second != nbytes || !lies_in(reserved_, address, nbytes)) {
    return kCudaErrorInvalidValue;
  }
  mapped_[address] = nbytes;
  return kCudaSuccess;
}

CudaResult FakeVmm::unmap(CudaAddress address, std::uint64_t nbytes) {
  const std::lock_guard guard(mutex_);
  if (!has(mapped_, address, nbytes)) return kCudaErrorInvalidValue;
  mapped_.erase(address);
  return kCudaSuccess;
}

CudaResult FakeVmm::set_access(CudaAddress address, std::uint64_t nbytes,
                               std::vector<driver::CudaMemoryAccess> wanted) {
  const std::lock_guard guard(mutex_);
  if (!covered(mapped_, address, nbytes)) return kCudaErrorInvalidValue;
  accesses = std::move(wanted);
  return kCudaSuccess;
}

}  // namespace zerohop::testing
