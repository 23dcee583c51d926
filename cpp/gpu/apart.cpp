#include "gpu/apart.hpp"

#include <pthread.h>

#include <system_error>
#include <thread>

namespace zerohop::gpu {

void run_apart(std::function<void()> work) noexcept {
  try {
    std::thread thread(work);
    ::pthread_setname_np(thread.native_handle(), "zh-free");
    thread.detach();
  } catch (const std::system_error&) {
    work();
  }
}

}  // namespace zerohop::gpu
