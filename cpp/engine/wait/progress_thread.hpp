// The one thread of an Endpoint: it waits for descriptors, runs tasks of other threads, and does
// periodic work. Everything about control connections happens on it, so none of that needs a lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/bell.hpp"
#include "base/locks.hpp"
#include "base/unique_fd.hpp"

namespace zerohop::engine {

class ProgressThread {
 public:
  using Task = std::function<void()>;
  using Handler = std::function<void(std::uint32_t epoll_events)>;
  using Idle = std::function<std::chrono::milliseconds()>;

  // idle runs before each wait and returns how long the wait may last. Throws Error if the process
  // is out of descriptors.
  explicit ProgressThread(Idle idle);
  ~ProgressThread();  // stops and joins, unless the thread belongs to another process (fork)

  // Starts the thread. Call it once everything that the thread uses exists: idle can find this
  // object, and the first descriptors are watched. Throws Error if the process is out of threads.
  void start();

  // From any thread, in the order of the calls. Tasks added before stop() still run; later ones are
  // destroyed.
  void run(Task task);
  void stop();
  bool on_thread() const noexcept { return std::this_thread::get_id() == thread_.get_id(); }

  // On the progress thread only, or before start(). watch() throws Error if the system cannot watch
  // more descriptors.
  void watch(int fd, std::uint32_t epoll_events, Handler handler);
  void change(int fd, std::uint32_t epoll_events);
  void unwatch(int fd);

 private:
  void loop();
  bool run_tasks();

  const unsigned generation_;
  Idle idle_;
  UniqueFd epoll_;
  Bell bell_;  // tasks are there
  std::unordered_map<int, std::shared_ptr<Handler>> handlers_;

  Mutex<Rank::progress> mutex_;
  std::vector<Task> tasks_;
  bool stopping_ = false;
  bool stopped_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace zerohop::engine
