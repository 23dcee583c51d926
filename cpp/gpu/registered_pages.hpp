// Pages of the host that GPUs reach, at the address that the CPU has for them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "gpu/device.hpp"

namespace zerohop::gpu {

enum class PageKind {
  memory,
  registers,  // of a PCIe device, as its doorbells
};

class RegisteredPages {
 public:
  // Pages of `what` that `owner` keeps mapped. For all GPUs that are like `device`. Throws
  // RouteUnavailable (a GPU that would have another address for them), CudaError.
  RegisteredPages(std::shared_ptr<const Device> device, std::shared_ptr<const void> owner,
                  void* begin, std::size_t nbytes, const std::string& what,
                  PageKind kind = PageKind::memory);
  // The GPUs must have done what touches them.
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
