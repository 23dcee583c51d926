// TCP sockets of the control channel: all non-blocking, close-on-exec, with TCP_NODELAY and
// keepalive. Hosts are IPv4 or IPv6 literals (fe80::1%eth0 included), never looked up.
#pragma once

#include <cstdint>
#include <string>

#include "base/unique_fd.hpp"

namespace zerohop::engine {

// Listens on one address of this host; port 0 takes a free one (see local_port). Throws Error.
UniqueFd listen_tcp(const std::string& host, std::uint16_t port = 0);

std::uint16_t local_port(int fd);

// For an accepted socket; start_connect() calls it itself.
void set_stream_options(int fd);

// Starts to connect and returns at once; the socket becomes writable when connected. Throws
// PeerLost when the network refuses immediately, ProtocolError when `host` is not a literal.
UniqueFd start_connect(const std::string& host, std::uint16_t port);

}  // namespace zerohop::engine
