// One datagram between processes of a host, with a descriptor or without: Unix sockets of the kind
// SOCK_SEQPACKET, which keep boundaries and tell the end (man 7 unix).
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "base/unique_fd.hpp"

namespace zerohop::shm {

struct Packet {
  std::size_t nbytes = 0;
  UniqueFd fd;           // that came with it, if one did
  bool lost_fd = false;  // one did, but this process is out of descriptors
};

// Listens under a name of the abstract namespace, which is that of the process's network
// namespace and leaves no file behind. Throws Error.
UniqueFd listen_local(const std::string& name);

// Connects at once or not at all: an empty UniqueFd and errno when nobody listens under that name.
UniqueFd connect_local(const std::string& name) noexcept;

// The process at the other end and its user, as they were when it listened or connected; a user
// that nobody is (-1) where the kernel does not say (man 7 unix: SO_PEERCRED).
ucred other_end(int socket) noexcept;

// False when the packet cannot be sent now or ever (errno). Never blocks, raises no SIGPIPE.
bool send_packet(int socket, std::span<const std::byte> bytes, int descriptor = -1) noexcept;

// The next packet: nullopt when there is none yet; nbytes 0 when the other side is gone. Throws
// ProtocolError when the packet is longer than `into`.
std::optional<Packet> receive_packet(int socket, std::span<std::byte> into);

// Whether the other side has closed or died, or shut down its way to here, whatever lies unread
// before that (man 2 poll: POLLRDHUP).
bool is_hung_up(int socket) noexcept;

}  // namespace zerohop::shm
