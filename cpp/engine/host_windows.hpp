// Mapped memory of the host that another process of it has given away, as GPUs of this one reach
// it.
#pragma once

#include <map>
#include <memory>

#include "base/locks.hpp"
#include "gpu/host_pages.hpp"
#include "ipc/visit.hpp"

namespace zerohop::engine {

// Any thread.
class HostWindows {
 public:
  // Of a window that is mapped. It stays mapped as long as they are remembered or used.
  std::shared_ptr<gpu::HostPages> pages(const std::shared_ptr<const ipc::Window>& window);

  // Lets go of what its owner exposes no more. To be called now and then.
  void sweep(const ipc::Visit& visit);
  void clear();  // lets go of everything; copies under way keep what they use

 private:
  struct Known {
    std::shared_ptr<const ipc::Window> window;
    std::shared_ptr<gpu::HostPages> pages;
  };
  using All = std::map<const ipc::Window*, Known>;

  Mutex<Rank::host_windows> mutex_;  // guards the next
  All all_;
};

}  // namespace zerohop::engine
