// The GID table of a port: the addresses under which queue pairs of other hosts reach it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "driver/verbs.hpp"

namespace zerohop::rdma {

enum class GidKind : std::uint8_t {
  infiniband,
  roce_v1,  // Ethernet frames: reaches the same Ethernet segment only
  roce_v2,  // UDP/IP: can be routed
  iwarp,    // an IP address of the device's network interface
  unknown,  // libibverbs has an interface older than 1.11, without the kind
};

const char* gid_kind_name(GidKind kind) noexcept;  // "InfiniBand", "RoCE v1", ...

struct Gid {
  int index = 0;
  GidKind kind = GidKind::unknown;
  std::uint32_t netdev = 0;  // interface index of its network device, 0 if it has none
  ibv_gid value{};
};

std::string gid_text(const ibv_gid& gid);          // as an IPv6 address
bool is_ipv4_mapped(const ibv_gid& gid) noexcept;  // ::ffff:a.b.c.d

// The used entries of one port, by index. ports: of the whole device, port 1 first. Throws
// VerbsError.
std::vector<Gid> list_gids(const driver::Verbs& verbs, ibv_context* context, std::uint8_t port,
                           std::span<const ibv_port_attr> ports);

}  // namespace zerohop::rdma
