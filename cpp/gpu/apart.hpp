// Frees GPU memory on behalf of callers that must not block: the thread that answers peers may drop
// the last reference, and freeing waits for the GPU.
//
// Each GPU has two threads for that, which exist only while there is work: one waits for the GPU,
// the other does everything else. A driver call that hangs delays only work for the same GPU.
// Process exit waits at most two seconds for running calls and starts none; the system frees the
// rest.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {

// gpu: its ordinal. Runs the work in the caller if no thread can be started.
void run_apart(int gpu, std::function<void()> work) noexcept;
// For callers that must not do the work. False: no thread can be started; the work stays with them.
[[nodiscard]] bool try_run_apart(int gpu, std::function<void()>& work) noexcept;
// Like run_apart(), once the GPU has finished all work submitted before this call. One wait for the
// GPU serves all work items queued when it began.
void run_when_idle(std::shared_ptr<const Device> device, std::function<void()> work) noexcept;

// While one of these exists, the program's kernels may be waiting for what threads of this process
// do. Before it frees memory or unloads a module, the driver waits for such kernels, and meanwhile
// blocks all copies of the process, including those that the kernels wait for. So the work of
// give_back() and give_back_apart() is postponed. (Not postponed, but done after waiting for the
// GPU: what must not stay, such as memory that peers hold, what the program closes, and rings of a
// closed queue.)
class KernelsWait {
 public:
  KernelsWait();
  ~KernelsWait();  // the last one runs the postponed work
  KernelsWait(const KernelsWait&) = delete;
  KernelsWait& operator=(const KernelsWait&) = delete;

 private:
  const unsigned generation_;  // of the process (fork)
};

// Like run_apart(), now or once no KernelsWait exists.
void give_back_apart(int gpu, std::function<void()> work) noexcept;
// Runs at once in the caller, where the driver may block; or on the thread once no KernelsWait
// exists.
void give_back(int gpu, std::function<void()> work) noexcept;

// Never destroys it: a GPU that hangs or has failed may still access it.
void keep_for_good(std::shared_ptr<const void> what) noexcept;

// Destroys driver objects of the device. If the context is gone, as at process exit, it leaks them.
template <typename Parts>
std::function<void()> destruction(std::shared_ptr<const Device> device,
                                  std::unique_ptr<Parts> parts) {
  return [device = std::move(device), left = parts.release()] {
    try {
      const DeviceGuard guard(*device);
      delete left;
    } catch (const CudaError&) {  // the context is gone
      keep_for_good(std::shared_ptr<Parts>(left));
    }
  };
}

}  // namespace zerohop::gpu
