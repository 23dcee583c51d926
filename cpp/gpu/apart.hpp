// What gives back memory of a GPU, for whoever must not wait: the thread that answers peers may
// drop the last hold on memory, and giving that back waits for the GPU.
//
// Each GPU has two threads for that, which are there while there is work: one that waits for the
// GPU, and one for all else. Behind a call of the driver that hangs the rest of that GPU's waits,
// and nothing of other GPUs. The end of the process waits two seconds at most for the calls that
// run, and begins none: the system gives back the rest.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {

// gpu: its ordinal. Here, where no thread is to be had.
void run_apart(int gpu, std::function<void()> work) noexcept;
// Likewise, once the GPU has done all that it was given before this call. One wait for the GPU
// serves all works that were there when it began.
void run_when_idle(std::shared_ptr<const Device> device, std::function<void()> work) noexcept;

// While one of these is held, kernels of the program may wait for what threads of this process
// carry out. The driver waits for such kernels before it frees memory or unloads a module, and
// holds up every copy of the process meanwhile, those that they wait for too: so what
// give_back() and give_back_apart() get is put off. (Not so what must not stay: memory that peers
// have, what the program closes, rings of a queue that is closed, for which the GPU is waited for.)
class KernelsWait {
 public:
  KernelsWait();
  ~KernelsWait();  // of the last one: gives back what was put off
  KernelsWait(const KernelsWait&) = delete;
  KernelsWait& operator=(const KernelsWait&) = delete;

 private:
  const unsigned generation_;  // of the process (fork)
};

// As run_apart(), now or once no KernelsWait is held.
void give_back_apart(int gpu, std::function<void()> work) noexcept;
// Now, here, where the driver may keep the caller; or apart once no KernelsWait is held.
void give_back(int gpu, std::function<void()> work) noexcept;

// Never destroys it: a GPU that hangs or has failed may still use it.
void keep_for_good(std::shared_ptr<const void> what) noexcept;

// Destroys what belongs to the device; where the context is gone, as at process exit, it stays as
// it is.
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
