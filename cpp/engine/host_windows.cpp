#include "engine/host_windows.hpp"

#include <vector>

namespace zerohop::engine {

std::shared_ptr<gpu::HostPages> HostWindows::pages(
    const std::shared_ptr<const ipc::Window>& window) {
  const std::lock_guard lock(mutex_);
  Known& known = all_[window.get()];
  if (!known.pages) {
    const auto begin = reinterpret_cast<std::uint64_t>(window->pages->data());
    const Extent whole{begin, begin + window->pages->nbytes()};
    known = {.window = window,
             .pages = std::make_shared<gpu::HostPages>(whole, window, window->writable)};
  }
  return known.pages;
}

void HostWindows::sweep(const ipc::Visit& visit) {
  std::vector<Known> last;  // unlocked outside the lock
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [&](const auto& entry) {
    if (visit.stands(*entry.second.window)) return false;
    last.push_back(entry.second);
    return true;
  });
}

void HostWindows::clear() {
  All last;  // unlocked outside the lock
  const std::lock_guard lock(mutex_);
  last.swap(all_);
}

}  // namespace zerohop::engine
