// The GID of a soft port contains everything that another soft device needs to reach it.
//
//   byte 0..3    fd 'z' 'h' 1: a unique-local IPv6 prefix that marks soft0, and the version
//   byte 4..9    random, of this opening of the device: a reused TCP port is not mistaken for it
//   byte 10..13  IPv4 address, in network byte order
//   byte 14..15  TCP port, in network byte order
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>

namespace zerohop::softhca {

ibv_gid make_gid(const sockaddr_in& listener);

bool is_soft_gid(const ibv_gid& gid) noexcept;

// The listening address of the port with this GID. Only for a GID that is_soft_gid().
sockaddr_in gid_address(const ibv_gid& gid) noexcept;

// Whether the two ports are on one host: same address, or both loopback.
bool on_one_host(const ibv_gid& a, const ibv_gid& b) noexcept;

}  // namespace zerohop::softhca
