// Which port of a device, and which of its GIDs, queue pairs use.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "rdma/gid.hpp"

namespace zerohop::rdma {

// What the user wants; the defaults leave the choice to choose_port and choose_gid.
struct PortWish {
  std::uint8_t port = 0;            // from 1; 0: the first that is active
  int gid_index = -1;               // -1: by kind and reach
  GidKind roce = GidKind::roce_v2;  // on Ethernet, unless gid_index is given
};

// The port of the wish, or the first active one, or 1 if none is. Throws VerbsError (EINVAL).
std::uint8_t choose_port(std::span<const ibv_port_attr> ports, const PortWish& wish,
                         const std::string& device);

// Of the kind that the port needs, the GID that reaches farthest: one that maps an IPv4 address
// before a global IPv6 address, loopback and link-local ones last; the lowest index among equals.
// The order of the table means nothing (indices depend on the order in which addresses were given).
// Throws VerbsError that lists what there is.
Gid choose_gid(std::span<const Gid> gids, bool ethernet, const PortWish& wish,
               const std::string& port);

}  // namespace zerohop::rdma
