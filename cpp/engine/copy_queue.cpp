#include "engine/copy_queue.hpp"

#include <pthread.h>

#include <new>
#include <system_error>
#include <utility>

#include "base/error.hpp"

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
    copies_.push_back(std::move(copy));
    try {
      if (!thread_.joinable()) {
        thread_ = std::thread([this] { run(); });
        ::pthread_setname_np(thread_.native_handle(), "zh-copy");
      }
    } catch (const std::system_error& error) {
      copies_.pop_back();
      throw Error(errno_message("the thread that copies cannot be started", error.code().value()),
                  error.code().value());
    }
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
