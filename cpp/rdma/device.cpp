#include "rdma/device.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "driver/rdmacm.hpp"
#include "driver/verbs_call.hpp"
#include "rdma/iwarp_gids.hpp"
#include "rdma/verbs_text.hpp"

namespace zerohop::rdma {
namespace {

class DeviceList {
 public:
  explicit DeviceList(const driver::Verbs& verbs) : verbs_(verbs) {
    list_ = verbs.get_device_list(&count_);
    // ENOSYS: a kernel without RDMA support has no devices; this is not an error.
    if (list_ == nullptr && errno != ENOSYS) {
      driver::throw_verbs_error("ibv_get_device_list", errno);
    }
  }
  ~DeviceList() {
    if (list_ != nullptr) verbs_.free_device_list(list_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (int i = 0; list_ != nullptr && i < count_; ++i) {
      names.emplace_back(verbs_.get_device_name(list_[i]));
    }
    return names;
  }
  ibv_device* at(std::size_t index) const noexcept { return list_[index]; }

 private:
  const driver::Verbs& verbs_;
  ibv_device** list_ = nullptr;
  int count_ = 0;
};

std::string no_such_device(std::string_view name, const std::vector<std::string>& names) {
  std::string message = "no RDMA device is called " + std::string(name) + ": ";
  if (names.empty()) return message + "there is none on this machine; use soft0";
  message += "choose one of";
  for (const std::string& known : names) message += ' ' + known;
  return message;
}

// Otherwise next_async_event() would block.
void make_non_blocking(int fd, const std::string& what) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    throw VerbsError(
        errno_message("cannot make the descriptor of " + what + " non-blocking", errno), errno);
  }
}

}  // namespace

std::vector<std::string> Device::names(const driver::Verbs& verbs) {
  return DeviceList(verbs).names();
}

std::shared_ptr<Device> Device::open(std::shared_ptr<const driver::Verbs> verbs,
                                     std::string_view name, const PortWish& wish) {
  const DeviceList list(*verbs);
  const std::vector<std::string> names = list.names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw VerbsError(no_such_device(name, names), ENODEV);
  ibv_device* device = list.at(static_cast<std::size_t>(found - names.begin()));
  const std::string what = "ibv_open_device of " + *found;  // before the call: it may change errno
  Context context(driver::check_null(verbs->open_device(device), what),
                  CloseContext{{verbs.get()}});
  return std::shared_ptr<Device>(new Device(std::move(verbs), std::move(context), *found, wish));
}

Device::Device(std::shared_ptr<const driver::Verbs> verbs, Context context, std::string name,
               const PortWish& wish)
    : verbs_(std::move(verbs)), context_(std::move(context)), name_(std::move(name)) {
  driver::check_errno(verbs_->query_device(context_.get(), &attributes_),
                      "ibv_query_device of " + name_);
  choose_port(wish);
  make_non_blocking(context_->async_fd, name_);
}

void Device::choose_port(const PortWish& wish) {
  std::vector<ibv_port_attr> ports;
  for (unsigned port = 1; port <= attributes_.phys_port_cnt; ++port) {
    ports.push_back(query_port(static_cast<std::uint8_t>(port)));
  }
  std::string obstacles;
  for (const std::uint8_t port : ports_to_try(ports.size(), wish, name_)) {
    const ibv_port_attr& attributes = ports[port - 1u];
    auto gids = list_gids(*verbs_, context_.get(), port, ports);
    if (is_iwarp()) gids = iwarp_gids(gids);
    const bool ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    const std::optional<Gid> gid = find_gid(gids, ethernet, wish);
    // Before the GIDs: a port that is down or not RoCE has no such GID either.
    std::string cause = obstacle_of(context_->device->transport_type, attributes, port);
    if (cause.empty() && is_iwarp() && !driver::librdmacm().functions) {
      cause = "is an iWARP device: " + driver::librdmacm().reason;
    }
    const bool serves = cause.empty() && gid;
    if (gid && (serves || port_ == 0)) {
      port_ = port;
      gid_ = *gid;
    }
    if (serves) return;
    if (cause.empty()) {
      cause = is_iwarp() ? "has a network interface without an IP address: give it one"
                         : "port " + std::to_string(port) + " " + lack_of_gid(gids, ethernet, wish);
    }
    if (obstacles.find(cause) != std::string::npos) continue;  // about the device, not the port
    obstacles += (obstacles.empty() ? "" : "; ") + cause;
  }
  if (port_ == 0) throw VerbsError(name_ + " " + obstacles, ENODATA);
  obstacle_ = obstacles;
}

void Device::CloseContext::operator()(ibv_context* context) const noexcept {
  if (is_this_process()) driver::report_errno(verbs->close_device(context), "ibv_close_device");
}

std::string Device::name_with(const char* limit, int ibv_device_attr::* most) const {
  ibv_device_attr now = attributes_;
  (void)verbs_->query_device(context_.get(), &now);  // on failure, those from the opening
  const bool software = verbs_->provider == "softhca";
  return name_ + " (" + limit + " " + std::to_string(now.*most) +
         (software ? ", its own or set by zh.Faults)" : ", for all processes together)");
}

ibv_port_attr Device::port_attributes() const { return query_port(port_); }

std::string Device::port_trouble() const {
  try {
    const ibv_port_state state = port_attributes().state;
    if (state == IBV_PORT_ACTIVE) return "";
    return "port " + std::to_string(port_) + " of " + name_ + " is " + port_state_name(state);
  } catch (const VerbsError&) {
    return "";
  }
}

ibv_port_attr Device::query_port(std::uint8_t port) const {
  ibv_port_attr attributes{};  // zeroed: the exported ibv_query_port fills the leading part only
  driver::check_errno(verbs_->query_port(context_.get(), port, &attributes),
                      "ibv_query_port of " + name_ + " port " + std::to_string(port));
  return attributes;
}

std::optional<AsyncEvent> Device::next_async_event() {
  ibv_async_event event{};
  while (verbs_->get_async_event(context_.get(), &event) < 0) {
    if (errno == EAGAIN) return std::nullopt;
    if (errno != EINTR) driver::throw_verbs_error("ibv_get_async_event of " + name_, errno);
  }
  // Read before the acknowledgement; until then the queue pair cannot be destroyed.
  const AsyncEvent decoded = AsyncEvent::decode(event);
  verbs_->ack_async_event(&event);
  return decoded;
}

bool Device::is_being_removed() const noexcept {
  const char* place = context_->device->dev_path;  // soft0 has none
  return place[0] == '/' && ::access(place, F_OK) != 0 && errno == ENOENT;
}

}  // namespace zerohop::rdma
