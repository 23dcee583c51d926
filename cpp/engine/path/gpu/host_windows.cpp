#include "engine/path/gpu/host_windows.hpp"

#include <vector>

namespace zerohop::engine {

std::shared_ptr<gpu::HostPages> HostWindows::pages(
    const ipc::Visit& visit, const std::shared_ptr<const ipc::Window>& window) {
  const std::lock_guard lock(mutex_);
  if (const auto known = all_.find(window->key);
      known != all_.end() && known->second.window == window) {
    return known->second.pages;
  }
  const auto begin = reinterpret_cast<std::uint64_t>(window->pages->data());
  const Extent whole{begin, begin + window->pages->nbytes()};
  auto fresh = std::make_shared<gpu::HostPages>(whole, window, window->writable);
  if (visit.stands(*window)) all_[window->key] = {.window = window, .pages = fresh};
  return fresh;
}

std::size_t HostWindows::sweep(const ipc::Visit& visit) {
  std::vector<All::node_type> ended;  // unlocked outside the lock
  const std::lock_guard lock(mutex_);
  const auto window_of = [](const Known& known) -> const ipc::Window& { return *known.window; };
  return visit.take_ended(all_, struck_seen_, window_of, ended);
}

void HostWindows::clear() {
  All last;  // unlocked outside the lock
  const std::lock_guard lock(mutex_);
  last.swap(all_);
}

}  // namespace zerohop::engine
