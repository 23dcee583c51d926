#include "engine/control/control_host.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::engine {
namespace {

std::string ipv4_text(const void* address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, address, text.data(), text.size());
  return text.data();
}

// The IPv4 address of the named interface; if empty, of the first that leads out of this host.
std::optional<std::string> interface_host(std::string_view name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    const bool up = (entry->ifa_flags & IFF_UP) != 0;
    const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (!up || (name.empty() ? loopback : name != entry->ifa_name)) continue;
    return ipv4_text(&reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr);
  }
  return std::nullopt;
}

// RoCE GIDs hold the interface's address as ::ffff:a.b.c.d, or name the interface.
std::optional<std::string> gid_host(const rdma::Gid& gid) {
  if (rdma::is_ipv4_mapped(gid.value)) return ipv4_text(gid.value.raw + 12);
  std::array<char, IF_NAMESIZE> name{};
  if (gid.netdev == 0 || ::if_indextoname(gid.netdev, name.data()) == nullptr) return std::nullopt;
  return interface_host(name.data());
}

}  // namespace

std::string control_host(const rdma::Device& device, const std::string& chosen) {
  if (!chosen.empty()) return chosen;
  const std::string_view name = device.name();
  if (name == softhca::kLoopbackDevice) return "127.0.0.1";
  if (name.starts_with(softhca::kLoopbackDevice)) {
    const std::string place(name.substr(softhca::kLoopbackDevice.size() + 1));
    in_addr address{};
    if (::inet_pton(AF_INET, place.c_str(), &address) == 1) return place;
    if (auto host = interface_host(place)) return *host;
  } else {
    if (auto host = gid_host(device.gid())) return *host;
    if (auto host = interface_host({})) return *host;
  }
  throw Error("cannot find the address on which device '" + device.name() +
                  "' can be reached: set host= (ZEROHOP_HOST) to an address of this host",
              EADDRNOTAVAIL);
}

}  // namespace zerohop::engine
