#include "watch.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "tree.hpp"

namespace zerohop::mlx5sim {
namespace {

std::string folder_of(int device) {
  return tree::root() + "/sys/class/infiniband_verbs/uverbs" + std::to_string(device);
}

}  // namespace

Watch::Watch(int device)
    : device_(device),
      fd_(UniqueFd::open([] { return ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC); })) {
  const std::string port = tree::attribute_path(device, "ports/1/state");
  if (!fd_ || ::inotify_add_watch(fd_.get(), port.c_str(), IN_CLOSE_WRITE) < 0 ||
      ::inotify_add_watch(fd_.get(), folder_of(device).c_str(), IN_MOVE_SELF | IN_DELETE_SELF) <
          0) {
    throw Error(errno_message("inotify failed", errno), errno);
  }
}

bool Watch::changed() noexcept {
  alignas(inotify_event) std::array<char, 4096> events;
  bool any = false;
  while (::read(fd_.get(), events.data(), events.size()) > 0) any = true;
  return any;
}

bool Watch::is_removed() const noexcept { return ::access(folder_of(device_).c_str(), F_OK) != 0; }

bool Watch::is_port_up() const {
  return tree::attribute(device_, "ports/1/state").starts_with("4:");
}

}  // namespace zerohop::mlx5sim
