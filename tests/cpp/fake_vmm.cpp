#include "fake_vmm.hpp"

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
  if (!has(reserved_, address, nbytes) || mapped_.contains(address)) return kCudaErrorInvalidValue;
  reserved_.erase(address);
  copies_.release(address);
  return kCudaSuccess;
}

CudaResult FakeVmm::map(CudaAddress address, std::uint64_t nbytes,
                        driver::CudaAllocation allocation) {
  const std::lock_guard guard(mutex_);
  const auto found = physical_.find(allocation);
  if (found == physical_.end() || found->second != nbytes || !has(reserved_, address, nbytes)) {
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
  if (!has(mapped_, address, nbytes)) return kCudaErrorInvalidValue;
  accesses = std::move(wanted);
  return kCudaSuccess;
}

}  // namespace zerohop::testing
