// Host pages that GPUs can access at the CPU's address.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "gpu/device.hpp"

namespace zerohop::gpu {

enum class PageKind {
  memory,
  registers,  // of a PCIe device, such as doorbells
};

class RegisteredPages {
 public:
  // Registers `what`, which `owner` keeps mapped, for all GPUs with the same addressing as
  // `device`. Throws RouteUnavailable (the GPU's address would differ), CudaError.
  RegisteredPages(std::shared_ptr<const Device> device, std::shared_ptr<const void> owner,
                  void* begin, std::size_t nbytes, const std::string& what,
                  PageKind kind = PageKind::memory);
  // The GPUs must have finished accessing the pages.
  ~RegisteredPages();
  RegisteredPages(const RegisteredPages&) = delete;
  RegisteredPages& operator=(const RegisteredPages&) = delete;

 private:
  const std::shared_ptr<const Device> device_;
  const std::shared_ptr<const void> owner_;
  void* const begin_;
  const unsigned generation_;  // of the process (fork)
};

}  // namespace zerohop::gpu
