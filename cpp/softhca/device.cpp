#include "softhca/device.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>

#include "base/error.hpp"
#include "base/locks.hpp"
#include "base/per_process.hpp"
#include "softhca/context.hpp"

namespace zerohop::softhca {
namespace {

constexpr const char* kLoopbackName = "soft0";
constexpr const char* kLoopback = "lo";

struct Interface {
  std::string name;
  in_addr address;
};

// The interfaces that are up and have an IPv4 address; the first one if there are several.
std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw Error(errno_message("getifaddrs failed", errno), errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    const bool usable = at->ifa_addr != nullptr && at->ifa_addr->sa_family == AF_INET &&
                        (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || (!found.empty() && found.back().name == at->ifa_name)) continue;
    found.push_back({at->ifa_name, reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr});
  }
  return found;
}

struct Known {
  Mutex<Rank::softhca_devices> mutex;
  std::vector<std::unique_ptr<SoftDevice>> devices;
};

Known& known() {
  static PerProcess<Known> all;
  return all.get();
}

// The one object for this name and address, created on first use.
SoftDevice* device_for(const std::string& name, const Interface& interface) {
  std::lock_guard guard(known().mutex);
  auto& all = known().devices;
  for (const auto& device : all) {
    if (device->name == name && device->address.s_addr == interface.address.s_addr) {
      return device.get();
    }
  }
  auto device = std::make_unique<SoftDevice>();
  static_cast<ibv_device&>(*device) = {};
  device->node_type = IBV_NODE_CA;
  device->transport_type = IBV_TRANSPORT_IB;
  std::snprintf(device->name, sizeof device->name, "%s", name.c_str());
  std::snprintf(device->dev_name, sizeof device->dev_name, "%s", name.c_str());
  device->interface = interface.name;
  device->address = interface.address;
  all.push_back(std::move(device));
  return all.back().get();
}

bool is_port(std::uint8_t port) { return port == 1; }

int minus_one(int error_number) {
  errno = error_number;
  return -1;
}

}  // namespace

std::vector<SoftDevice*> soft_devices() {
  std::vector<SoftDevice*> devices;
  devices.push_back(device_for(kLoopbackName, {kLoopback, {htonl(INADDR_LOOPBACK)}}));
  for (const Interface& interface : interfaces()) {
    devices.push_back(device_for(std::string(kLoopbackName) + "@" + interface.name, interface));
  }
  std::lock_guard guard(known().mutex);
  for (const auto& device : known().devices) {
    if (device->interface == kLoopback && device->name != std::string_view(kLoopbackName)) {
      devices.push_back(device.get());
    }
  }
  return devices;
}

SoftDevice* loopback_device(const std::string& name) {
  const std::string prefix = std::string(kLoopbackName) + "@";
  in_addr address{};
  if (!name.starts_with(prefix)) return nullptr;
  if (::inet_pton(AF_INET, name.c_str() + prefix.size(), &address) != 1) return nullptr;
  const std::uint32_t number = ntohl(address.s_addr);
  if (number >> IN_CLASSA_NSHIFT != IN_LOOPBACKNET || number == INADDR_LOOPBACK) return nullptr;
  return device_for(name, {kLoopback, address});
}

ibv_device** get_device_list(int* count) {
  try {
    const std::vector<SoftDevice*> devices = soft_devices();
    auto list = std::make_unique<ibv_device*[]>(devices.size() + 1);  // ends with a null
    for (std::size_t i = 0; i < devices.size(); ++i) list[i] = devices[i];
    if (count != nullptr) *count = static_cast<int>(devices.size());
    return list.release();
  } catch (const Error& error) {
    errno = error.code();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  if (count != nullptr) *count = 0;
  return nullptr;
}

void free_device_list(ibv_device** list) { delete[] list; }

const char* get_device_name(ibv_device* device) { return device->name; }

int query_device(ibv_context* handle, ibv_device_attr* attributes) {
  const Context& context = Context::of(handle);
  if (context.forked()) return ENODEV;
  *attributes = {};
  std::snprintf(attributes->fw_ver, sizeof attributes->fw_ver, "soft");
  attributes->node_guid = context.gid().global.interface_id;
  attributes->sys_image_guid = context.gid().global.interface_id;
  attributes->max_mr_size = UINT64_MAX;
  attributes->page_size_cap = 4096;
  attributes->max_qp = limits::kQueuePairs;
  attributes->max_qp_wr = limits::kWorkRequests;
  attributes->max_sge = limits::kSge;
  attributes->max_sge_rd = limits::kSge;
  attributes->max_cq = limits::kQueuePairs;
  attributes->max_cqe = limits::kCompletions;
  attributes->max_srq = limits::kQueuePairs;
  attributes->max_srq_wr = limits::kWorkRequests;
  attributes->max_srq_sge = limits::kSge;
  attributes->max_mr = INT32_MAX;
  attributes->max_pd = INT32_MAX;
  attributes->max_qp_rd_atom = limits::kReadsAndAtomics;
  attributes->max_res_rd_atom = limits::kQueuePairs;
  attributes->max_qp_init_rd_atom = limits::kReadsAndAtomics;
  attributes->atomic_cap = IBV_ATOMIC_HCA;
  attributes->max_pkeys = 1;
  attributes->phys_port_cnt = 1;
  context.faults.limit(*attributes);
  return 0;
}

int query_port(ibv_context* handle, std::uint8_t port, ibv_port_attr* attributes) {
  if (Context::of(handle).forked()) return ENODEV;
  if (!is_port(port)) return EINVAL;
  *attributes = {};
  attributes->state = IBV_PORT_ACTIVE;
  attributes->max_mtu = IBV_MTU_4096;
  attributes->active_mtu = IBV_MTU_4096;
  attributes->gid_tbl_len = 1;
  attributes->max_msg_sz = wire::kMaxMessage;
  attributes->pkey_tbl_len = 1;
  attributes->max_vl_num = 1;
  attributes->active_width = 1;
  attributes->active_speed = 1;
  attributes->phys_state = 5;  // LinkUp
  attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

int query_gid(ibv_context* handle, std::uint8_t port, int index, ibv_gid* gid) {
  const Context& context = Context::of(handle);
  if (context.forked()) return minus_one(ENODEV);
  if (!is_port(port) || index != 0) return minus_one(EINVAL);
  *gid = context.gid();
  return 0;
}

ssize_t query_gid_table(ibv_context* handle, ibv_gid_entry* entries, std::size_t max_entries,
                        std::uint32_t flags, std::size_t entry_size) {
  const Context& context = Context::of(handle);
  if (context.forked()) return -ENODEV;
  if (max_entries < 1 || flags != 0 || entry_size < sizeof *entries) return -EINVAL;
  *entries = {.gid = context.gid(),
              .gid_index = 0,
              .port_num = 1,
              .gid_type = IBV_GID_TYPE_ROCE_V2,
              .ndev_ifindex = 0};
  return 1;
}

int query_pkey(ibv_context* handle, std::uint8_t port, int index, __be16* pkey) {
  if (Context::of(handle).forked()) return minus_one(ENODEV);
  if (!is_port(port) || index != 0) return minus_one(EINVAL);
  *pkey = htons(0xffff);  // the default partition, full membership
  return 0;
}

}  // namespace zerohop::softhca
