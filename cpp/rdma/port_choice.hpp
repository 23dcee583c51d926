// Which port and GID of a device queue pairs use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rdma/gid.hpp"

namespace zerohop::rdma {

// The user's choice; the defaults leave it to Device and find_gid.
struct PortWish {
  std::uint8_t port = 0;            // from 1; 0: the first that is active and has a GID of the kind
  int gid_index = -1;               // at most kMaxGidIndex; -1: by kind and reach
  GidKind roce = GidKind::roce_v2;  // on Ethernet, unless gid_index is given
};

inline constexpr int kMaxGidIndex = 255;  // sgid_index of ibv_global_route has 8 bits

// Ports to try, in order: the one of the wish, or all `count`. Throws VerbsError (EINVAL).
std::vector<std::uint8_t> ports_to_try(std::size_t count, const PortWish& wish,
                                       const std::string& device);

// Why queue pairs cannot run on a device of this kind, or on a port in this state: half a sentence
// ("has port 1 in state DOWN: ..."); empty if they can.
std::string obstacle_of(ibv_transport_type transport, const ibv_port_attr& attributes,
                        std::uint8_t port);

// Of the GIDs of the kind that the port needs, the one that reaches farthest: one that maps an IPv4
// address before a global IPv6 address, loopback and link-local ones last; the lowest index among
// equals. The order of the table means nothing (indices depend on the order in which addresses were
// added).
std::optional<Gid> find_gid(std::span<const Gid> gids, bool ethernet, const PortWish& wish);
// Why there is none, with the existing GIDs: half a sentence ("has no RoCE v2 GID: it has ...").
std::string lack_of_gid(std::span<const Gid> gids, bool ethernet, const PortWish& wish);

}  // namespace zerohop::rdma
