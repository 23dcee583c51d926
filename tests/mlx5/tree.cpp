#include "tree.hpp"

#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace zerohop::mlx5sim::tree {
namespace {

constexpr std::string_view kSimulated[] = {"/sys/class/infiniband", "/dev/infiniband",
                                           "/sys/module/nvidia_peermem"};
constexpr std::string_view kDevice = "/dev/infiniband/uverbs";
constexpr int kMostDevices = 64;
// 127.80.0.0/24: each device has an address of its own.
constexpr std::uint8_t kNetwork[] = {127, 80, 0};
constexpr std::size_t kLast = 15;  // byte of a GID: one more than the number of the device

// "//sys" is "/sys".
const char* without_double_slash(const char* path) noexcept {
  while (path[0] == '/' && path[1] == '/') ++path;
  return path;
}

std::string device_name(int device) { return "mlx5sim" + std::to_string(device); }

std::string queue_pair_file(int device, std::uint32_t number) {
  return root() + "/queue_pairs/" + device_name(device) + "/" + std::to_string(number);
}

// Closed by the caller.
int open_file(const std::string& path, int flags) {
  return ::open(path.c_str(), flags | O_CLOEXEC, 0600);
}

}  // namespace

const std::string& root() {
  static const auto* const folder = [] {
    const char* named = std::getenv("MLX5SIM_TREE");
    return new std::string(named != nullptr ? named : "");  // used until exit
  }();
  return *folder;
}

const char* redirect(const char* path, char (&place)[kMostPath]) noexcept {
  if (path == nullptr || path[0] != '/' || root().empty()) return path;
  const char* asked = without_double_slash(path);
  for (const std::string_view prefix : kSimulated) {
    if (std::strncmp(asked, prefix.data(), prefix.size()) != 0) continue;
    const int written = std::snprintf(place, sizeof place, "%s%s", root().c_str(), asked);
    if (written > 0 && static_cast<std::size_t>(written) < sizeof place) return place;
  }
  return path;
}

int device_of(const char* path) noexcept {
  if (path == nullptr || root().empty() || std::strncmp(path, kDevice.data(), kDevice.size()) != 0)
    return -1;
  const std::string_view rest = path + kDevice.size();
  int number = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return error == std::errc{} && end == rest.data() + rest.size() ? number : -1;
}

ibv_gid gid(int device, int index) {
  ibv_gid value{};
  if (index < 2) {  // link-local, with an interface identifier
    value.raw[0] = 0xfe;
    value.raw[1] = 0x80;
    value.raw[8] = 0x02;  // locally administered: no manufacturer's
    value.raw[11] = 0xff;
    value.raw[12] = 0xfe;
  } else {
    value.raw[10] = value.raw[11] = 0xff;
    std::memcpy(&value.raw[12], kNetwork, sizeof kNetwork);
  }
  value.raw[kLast] = static_cast<std::uint8_t>(device + 1);
  return value;
}

std::uint32_t gid_type(int index) {
  return index % 2 == 0 ? IB_UVERBS_GID_TYPE_ROCE_V1 : IB_UVERBS_GID_TYPE_ROCE_V2;
}

std::string address(int device) {
  char text[32];
  std::snprintf(text, sizeof text, "%u.%u.%u.%d", kNetwork[0], kNetwork[1], kNetwork[2],
                device + 1);
  return text;
}

bool announce(int device, std::uint32_t qp_number, const Where& where) {
  const std::string path = queue_pair_file(device, qp_number);
  // Complete as soon as it has its name.
  const std::string draft = path + "." + std::to_string(::getpid());
  const int fd = open_file(draft, O_WRONLY | O_CREAT | O_TRUNC);
  if (fd < 0) return false;
  const bool written = ::write(fd, &where, sizeof where) == sizeof where;
  ::close(fd);
  const bool linked = written && ::link(draft.c_str(), path.c_str()) == 0;
  ::unlink(draft.c_str());
  return linked;
}

void withdraw(int device, std::uint32_t qp_number) noexcept {
  ::unlink(queue_pair_file(device, qp_number).c_str());
}

int device_with(const ibv_gid& asked) {
  const int device = asked.raw[kLast] - 1;
  if (device < 0 || device >= kMostDevices) return -1;
  bool found = false;
  for (int index = 0; index < kGids; ++index) {
    const ibv_gid own = gid(device, index);
    found |= std::memcmp(own.raw, asked.raw, sizeof own.raw) == 0;
  }
  const std::string folder = root() + "/queue_pairs/" + device_name(device);
  return found && ::access(folder.c_str(), F_OK) == 0 ? device : -1;
}

std::optional<Where> find(int device, std::uint32_t qp_number) {
  const int fd = open_file(queue_pair_file(device, qp_number), O_RDONLY);
  if (fd < 0) return std::nullopt;
  Where where{};
  const bool read = ::read(fd, &where, sizeof where) == sizeof where;
  ::close(fd);
  return read ? std::optional(where) : std::nullopt;
}

std::string attribute_path(int device, const std::string& name) {
  return root() + "/sys/class/infiniband/" + device_name(device) + "/" + name;
}

std::string attribute(int device, const std::string& name) {
  const int fd = open_file(attribute_path(device, name), O_RDONLY);
  if (fd < 0) return {};
  char text[256];
  const ssize_t nbytes = ::read(fd, text, sizeof text);
  ::close(fd);
  const std::string_view whole(text, nbytes > 0 ? static_cast<std::size_t>(nbytes) : 0);
  return std::string(whole.substr(0, whole.find('\n')));
}

}  // namespace zerohop::mlx5sim::tree
