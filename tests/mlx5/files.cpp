#include "files.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>

#include "base/error.hpp"
#include "base/per_process.hpp"
#include "call.hpp"

namespace zerohop::mlx5sim::files {
namespace {

constexpr int kMost = 1 << 16;
std::array<std::atomic<bool>, kMost> numbers;

struct Open {
  std::shared_ptr<Ucontext> device;
  std::shared_ptr<EventFile> events;
};

struct All {
  std::mutex mutex;
  std::map<int, Open> open;
  // Other handlers of fork(2) close descriptors before there is a table of the child's.
  pid_t process = ::getpid();
  bool of_parent() const noexcept { return process != ::getpid(); }
};

All& all() {
  static PerProcess<All> each;
  return each.get();
}

void add(int fd, Open open) {
  if (fd >= kMost) throw Error("too many open files", EMFILE);
  const std::lock_guard guard(all().mutex);
  all().open.insert_or_assign(fd, std::move(open));
  numbers[static_cast<std::size_t>(fd)].store(true);
}

Open find(int fd) noexcept {
  if (!is_one(fd) || all().of_parent()) return {};
  const std::lock_guard guard(all().mutex);
  const auto found = all().open.find(fd);
  return found != all().open.end() ? found->second : Open{};
}

}  // namespace

bool is_one(int fd) noexcept {
  return fd >= 0 && fd < kMost &&
         numbers[static_cast<std::size_t>(fd)].load(std::memory_order_relaxed);
}

int add_device(int fd, int device) noexcept {
  return errno_of([&] {
    add(fd, {std::make_shared<Ucontext>(device), nullptr});
    return 0;
  });
}

std::shared_ptr<EventFile> add_events() {
  auto file = std::make_shared<EventFile>();
  add(file->fd(), {nullptr, file});
  return file;
}

std::shared_ptr<Ucontext> device(int fd) noexcept { return find(fd).device; }
std::shared_ptr<EventFile> events(int fd) noexcept { return find(fd).events; }

std::vector<std::shared_ptr<Ucontext>> devices() {
  std::vector<std::shared_ptr<Ucontext>> found;
  const std::lock_guard guard(all().mutex);
  for (const auto& [fd, open] : all().open) {
    if (open.device) found.push_back(open.device);
  }
  return found;
}

bool forget(int fd) noexcept {
  Open closed;
  numbers[static_cast<std::size_t>(fd)].store(false);
  if (all().of_parent()) return false;
  {
    const std::lock_guard guard(all().mutex);
    const auto found = all().open.find(fd);
    if (found == all().open.end()) return false;
    closed = std::move(found->second);
    all().open.erase(found);
  }
  return closed.events != nullptr;  // which owns its descriptor
}

}  // namespace zerohop::mlx5sim::files
