#include "rdma/iwarp_gids.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include "base/error.hpp"

namespace zerohop::rdma {
namespace {

constexpr std::size_t kMacBytes = 6;

using Interfaces = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

Interfaces list_interfaces() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw VerbsError(errno_message("getifaddrs failed", errno), errno);
  return {all, &::freeifaddrs};
}

bool has_mac(const ifaddrs& entry, const ibv_gid& gid) {
  if (entry.ifa_addr == nullptr || entry.ifa_addr->sa_family != AF_PACKET) return false;
  sockaddr_ll link{};
  std::memcpy(&link, entry.ifa_addr, sizeof link);
  return link.sll_halen == kMacBytes && std::memcmp(link.sll_addr, gid.raw, kMacBytes) == 0;
}

bool to_gid(const sockaddr* address, ibv_gid& gid) {
  if (address == nullptr) return false;
  if (address->sa_family == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, address, sizeof ipv4);
    gid = {};
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(&gid.raw[12], &ipv4.sin_addr, sizeof ipv4.sin_addr);
    return true;
  }
  if (address->sa_family != AF_INET6) return false;
  sockaddr_in6 ipv6{};
  std::memcpy(&ipv6, address, sizeof ipv6);
  std::memcpy(gid.raw, &ipv6.sin6_addr, sizeof gid.raw);
  return true;
}

}  // namespace

std::vector<Gid> iwarp_gids(const std::vector<Gid>& table) {
  std::vector<Gid> gids;
  if (table.empty()) return gids;
  const Interfaces all = list_interfaces();
  for (const ifaddrs* link = all.get(); link != nullptr; link = link->ifa_next) {
    if (!has_mac(*link, table.front().value)) continue;
    for (const ifaddrs* each = all.get(); each != nullptr; each = each->ifa_next) {
      ibv_gid value{};
      if (std::strcmp(each->ifa_name, link->ifa_name) != 0 || !to_gid(each->ifa_addr, value)) {
        continue;
      }
      gids.push_back({.index = static_cast<int>(gids.size()),
                      .kind = GidKind::iwarp,
                      .netdev = ::if_nametoindex(link->ifa_name),
                      .value = value});
    }
  }
  return gids;
}

socklen_t to_socket_address(const Gid& gid, std::uint16_t port,
                            sockaddr_storage& address) noexcept {
  address = {};
  if (is_ipv4_mapped(gid.value)) {
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = ::htons(port);
    std::memcpy(&ipv4.sin_addr, &gid.value.raw[12], sizeof ipv4.sin_addr);
    std::memcpy(&address, &ipv4, sizeof ipv4);
    return sizeof ipv4;
  }
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = ::htons(port);
  ipv6.sin6_scope_id = gid.netdev;  // of link-local addresses; ignored for others
  std::memcpy(&ipv6.sin6_addr, gid.value.raw, sizeof ipv6.sin6_addr);
  std::memcpy(&address, &ipv6, sizeof ipv6);
  return sizeof ipv6;
}

}  // namespace zerohop::rdma
