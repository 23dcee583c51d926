// Physical memory, address ranges and mappings of a nonexistent GPU, for FakeCuda: refuses invalid
// operations, and counts leaks.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "driver/cuda_constants.hpp"
#include "fake_copies.hpp"

namespace zerohop::testing {

class FakeVmm {
 public:
  static constexpr std::uint64_t kPage = 2 << 20;
  static constexpr std::byte kGarbage{0xDB};  // in fresh memory

  explicit FakeVmm(FakeCopies& copies) : copies_(copies) {}

  std::uint64_t free_nbytes = std::uint64_t{1} << 30;  // that can still be created
  // Of the last allocation, and the access rights of the last mapping.
  driver::CudaMemoryProperties properties{};
  std::vector<driver::CudaMemoryAccess> accesses;

  // Live objects.
  int physical() const { return count(physical_); }
  int reserved() const { return count(reserved_); }
  int mapped() const { return count(mapped_); }

  // The table's functions.
  driver::CudaResult create(driver::CudaAllocation* allocation, std::uint64_t nbytes,
                            const driver::CudaMemoryProperties& wanted);
  driver::CudaResult release(driver::CudaAllocation allocation);
  // Other processes' memory is treated as this one's: its content is not shared.
  driver::CudaResult export_fd(int* fd, driver::CudaAllocation allocation);
  driver::CudaResult import_fd(driver::CudaAllocation* allocation, int fd);
  driver::CudaResult reserve(driver::CudaAddress* address, std::uint64_t nbytes);
  driver::CudaResult free_addresses(driver::CudaAddress address, std::uint64_t nbytes);
  driver::CudaResult map(driver::CudaAddress address, std::uint64_t nbytes,
                         driver::CudaAllocation allocation);
  driver::CudaResult unmap(driver::CudaAddress address, std::uint64_t nbytes);
  driver::CudaResult set_access(driver::CudaAddress address, std::uint64_t nbytes,
                                std::vector<driver::CudaMemoryAccess> wanted);

 private:
  template <typename T>
  int count(const T& objects) const {
    const std::lock_guard guard(mutex_);
    return static_cast<int>(objects.size());
  }

  FakeCopies& copies_;
  mutable std::mutex mutex_;
  driver::CudaAllocation last_ = 0;
  std::map<driver::CudaAllocation, std::uint64_t> physical_;  // their nbytes, as the next
  std::map<driver::CudaAddress, std::uint64_t> reserved_;
  std::map<driver::CudaAddress, std::uint64_t> mapped_;
};

}  // namespace zerohop::testing
