// The addresses of an iWARP device. Its GID table holds no more than the MAC address of its network
// interface; queue pairs are connected by that interface's IP addresses.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <vector>

#include "rdma/gid.hpp"

namespace zerohop::rdma {

// The IP addresses of the interface whose MAC address `table` begins with, as Gid values of kind
// iwarp, numbered from 0 in the system's order. Empty if it has none.
std::vector<Gid> iwarp_gids(const std::vector<Gid>& table);

// Such a value and a port as an address for rdma_cm. Returns its size.
socklen_t to_socket_address(const Gid& gid, std::uint16_t port, sockaddr_storage& address) noexcept;

}  // namespace zerohop::rdma
