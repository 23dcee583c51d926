#include "engine/wait/progress_thread.hpp"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <exception>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/report.hpp"
#include "base/scarcity.hpp"

namespace zerohop::engine {
namespace {

UniqueFd make_epoll() {
  UniqueFd fd = UniqueFd::open([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  if (fd) return fd;
  throw_scarce("epoll_create1 failed", errno);
}

}  // namespace

ProgressThread::ProgressThread(Idle idle)
    : generation_(fork_generation()), idle_(std::move(idle)), epoll_(make_epoll()) {
  watch(bell_.fd(), EPOLLIN, [this](std::uint32_t) { bell_.silence(); });
}

void ProgressThread::start() {
  thread_ = start_thread("zh-progress", [this] { loop(); });
}

ProgressThread::~ProgressThread() {
  if (generation_ != fork_generation()) {
    new std::thread(std::move(thread_));  // it runs in the parent: nothing to join
    return;
  }
  stop();
}

void ProgressThread::run(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    tasks_.push_back(std::move(task));
  }
  bell_.ring();
}

void ProgressThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  bell_.ring();
  if (thread_.joinable()) thread_.join();
  std::vector<Task> late;  // they may own the owner of this object
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  late.swap(tasks_);
}

void ProgressThread::watch(int fd, std::uint32_t epoll_events, Handler handler) {
  epoll_event event{.events = epoll_events, .data = {.fd = fd}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw_scarce("epoll_ctl failed", errno);
  }
  handlers_[fd] = std::make_shared<Handler>(std::move(handler));
}

void ProgressThread::change(int fd, std::uint32_t epoll_events) {
  epoll_event event{.events = epoll_events, .data = {.fd = fd}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void ProgressThread::unwatch(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  handlers_.erase(fd);
}

bool ProgressThread::run_tasks() {
  for (;;) {
    std::vector<Task> tasks;
    bool stopping = false;
    {
      const std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
      stopping = stopping_;
    }
    for (Task& task : tasks) {
      try {
        task();
      } catch (const std::exception& error) {  // the other tasks still run
        report({"progress thread: ", error.what()});
      }
    }
    if (!stopping) return true;
    // Tasks may add others, whose ring may have been read together with the ring to stop.
    if (tasks.empty()) return false;
  }
}

void ProgressThread::loop() {
  std::array<epoll_event, 64> events;
  for (;;) {
    try {
      if (!run_tasks()) return;
      const auto timeout = static_cast<int>(idle_().count());
      const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), timeout);
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        // An earlier handler may have unwatched this one, and a handler may unwatch itself.
        const auto found = handlers_.find(event.data.fd);
        if (found == handlers_.end()) continue;
        const std::shared_ptr<Handler> handler = found->second;
        (*handler)(event.events);
      }
    } catch (const std::exception& error) {
      report({"progress thread: ", error.what()});
    }
  }
}

}  // namespace zerohop::engine
