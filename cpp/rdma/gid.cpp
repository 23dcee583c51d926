#include "rdma/gid.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "driver/verbs_call.hpp"

namespace zerohop::rdma {
namespace {

GidKind kind_of(std::uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_IB: return GidKind::infiniband;
    case IBV_GID_TYPE_ROCE_V1: return GidKind::roce_v1;
    case IBV_GID_TYPE_ROCE_V2: return GidKind::roce_v2;
    default: return GidKind::unknown;
  }
}

// One call for all ports, including the kinds; empty if the library or the kernel lacks it.
std::vector<Gid> query_table(const driver::Verbs& verbs, ibv_context* context, std::uint8_t port,
                             std::span<const ibv_port_attr> ports) {
  if (verbs.query_gid_table == nullptr) return {};
  std::size_t most = 0;
  for (const ibv_port_attr& each : ports) most += static_cast<std::size_t>(each.gid_tbl_len);
  std::vector<ibv_gid_entry> entries(most);
  const ssize_t count =
      verbs.query_gid_table(context, entries.data(), entries.size(), 0, sizeof(ibv_gid_entry));
  std::vector<Gid> gids;
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<std::size_t>(i)];
    if (entry.port_num != port) continue;
    gids.push_back({static_cast<int>(entry.gid_index), kind_of(entry.gid_type), entry.ndev_ifindex,
                    entry.gid});
  }
  return gids;
}

// One call per index, without the kinds.
std::vector<Gid> query_each(const driver::Verbs& verbs, ibv_context* context, std::uint8_t port,
                            int table_length) {
  constexpr ibv_gid kEmpty{};
  std::vector<Gid> gids;
  for (int index = 0; index < table_length; ++index) {
    Gid gid{.index = index};
    if (verbs.query_gid(context, port, index, &gid.value) != 0) {
      // ENODATA: an empty entry. EINVAL: an entry of another network namespace (a container).
      if (errno == ENODATA || errno == EINVAL) continue;
      driver::throw_verbs_error(
          "ibv_query_gid of port " + std::to_string(port) + " index " + std::to_string(index),
          errno);
    }
    if (std::memcmp(&gid.value, &kEmpty, sizeof kEmpty) != 0) gids.push_back(gid);
  }
  return gids;
}

}  // namespace

const char* gid_kind_name(GidKind kind) noexcept {
  switch (kind) {
    case GidKind::infiniband: return "InfiniBand";
    case GidKind::roce_v1: return "RoCE v1";
    case GidKind::roce_v2: return "RoCE v2";
    case GidKind::iwarp: return "iWARP";
    case GidKind::unknown: break;
  }
  return "unknown kind";
}

std::string gid_text(const ibv_gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
  return text.data();
}

bool is_ipv4_mapped(const ibv_gid& gid) noexcept {
  constexpr std::array<std::uint8_t, 12> kPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kPrefix.begin(), kPrefix.end(), gid.raw);
}

std::vector<Gid> list_gids(const driver::Verbs& verbs, ibv_context* context, std::uint8_t port,
                           std::span<const ibv_port_attr> ports) {
  std::vector<Gid> gids = query_table(verbs, context, port, ports);
  if (gids.empty()) gids = query_each(verbs, context, port, ports[port - 1u].gid_tbl_len);
  std::sort(gids.begin(), gids.end(), [](const Gid& a, const Gid& b) { return a.index < b.index; });
  return gids;
}

}  // namespace zerohop::rdma
