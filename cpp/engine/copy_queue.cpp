#include "engine/copy_queue.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/scarcity.hpp"

namespace zerohop::engine {

void CopyQueue::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CopyQueue::put(Copy copy) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw Error("this Endpoint is closed: make a new one");
    // Before the copy is put in: who cannot have a thread is told, and nothing is left behind.
    if (!thread_.joinable()) thread_ = start_thread("zh-copy", [this] { run(); });
    copies_.push_back(std::move(copy));
  }
  changed_.notify_all();
}

void CopyQueue::run() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !copies_.empty(); });
    if (copies_.empty()) return;
    {
      const Copy copy = std::move(copies_.front());
      copies_.pop_front();
      lock.unlock();
      copy();
    }  // and with it what it held
    lock.lock();
  }
}

}  // namespace zerohop::engine
