#include "gpu/apart.hpp"

#include <pthread.h>

#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

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

void keep_for_good(std::shared_ptr<const void> what) noexcept {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<const void>>();  // beyond exit, too
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(what));
}

}  // namespace zerohop::gpu
