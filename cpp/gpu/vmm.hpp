// Owners of the driver's virtual memory objects: physical memory, address ranges, and mappings.
// CUDA Driver API, "Virtual Memory Management".
#pragma once

#include <cstdint>
#include <string>

#include "base/layout.hpp"
#include "driver/cuda.hpp"

namespace zerohop::gpu {

// A failed release is not reported: at process exit the driver may have shut down first. The table
// must outlive the objects.

class PhysicalMemory {
 public:
  PhysicalMemory(const driver::Cuda& cuda, driver::CudaAllocation handle) noexcept
      : cuda_(&cuda), handle_(handle) {}
  PhysicalMemory(PhysicalMemory&& other) noexcept : cuda_(other.cuda_), handle_(other.handle_) {
    other.cuda_ = nullptr;
  }
  PhysicalMemory& operator=(PhysicalMemory&&) = delete;
  ~PhysicalMemory() {
    if (cuda_ != nullptr) (void)cuda_->memory_release_allocation(handle_);
  }

  driver::CudaAllocation handle() const noexcept { return handle_; }

 private:
  const driver::Cuda* cuda_;  // null: moved from
  driver::CudaAllocation handle_;
};

class AddressRange {
 public:
  // what: names the memory in messages. Throws CudaError.
  AddressRange(const driver::Cuda& cuda, std::uint64_t nbytes, const std::string& what);
  ~AddressRange() { (void)cuda_.memory_free_addresses(begin_, nbytes_); }
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  driver::CudaAddress begin() const noexcept { return begin_; }
  std::uint64_t nbytes() const noexcept { return nbytes_; }

 private:
  const driver::Cuda& cuda_;
  const std::uint64_t nbytes_;
  driver::CudaAddress begin_ = 0;
};

class MappedMemory {
 public:
  // Maps all `nbytes` of `physical` at `begin`, inside an AddressRange. Throws CudaError.
  MappedMemory(const driver::Cuda& cuda, driver::CudaAddress begin, std::uint64_t nbytes,
               const PhysicalMemory& physical, const std::string& what);
  MappedMemory(MappedMemory&& other) noexcept
      : cuda_(other.cuda_), begin_(other.begin_), nbytes_(other.nbytes_) {
    other.cuda_ = nullptr;
  }
  MappedMemory& operator=(MappedMemory&&) = delete;
  ~MappedMemory() {
    if (cuda_ != nullptr) (void)cuda_->memory_unmap(begin_, nbytes_);
  }

 private:
  const driver::Cuda* cuda_;  // null: moved from
  driver::CudaAddress begin_;
  std::uint64_t nbytes_;
};

}  // namespace zerohop::gpu
