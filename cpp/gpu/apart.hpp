// Work on a thread of its own, for whoever must not wait: the thread that answers peers may drop
// the last hold on memory, and giving that back waits for the GPU.
#pragma once

#include <functional>

namespace zerohop::gpu {

void run_apart(std::function<void()> work) noexcept;  // here, where no thread is to be had

}  // namespace zerohop::gpu
