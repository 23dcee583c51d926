// Work on a thread of its own, for whoever must not wait: the thread that answers peers may drop
// the last hold on memory, and giving that back waits for the GPU.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {

// Here, where no thread is to be had. At the end of the process, which waits for what runs, two
// seconds at most, nothing more is done.
void run_apart(std::function<void()> work) noexcept;

// Never destroys it: a GPU that hangs or has failed may still use it.
void keep_for_good(std::shared_ptr<const void> what) noexcept;

// Destroys what belongs to the device there; where the context is gone, as at process exit, it
// stays as it is.
template <typename Parts>
void destroy_apart(const std::shared_ptr<const Device>& device,
                   std::unique_ptr<Parts> parts) noexcept {
  run_apart([device, left = parts.release()] {
    try {
      const DeviceGuard guard(*device);
      delete left;
    } catch (const CudaError&) {  // the context is gone
      keep_for_good(std::shared_ptr<Parts>(left));
    }
  });
}

}  // namespace zerohop::gpu
