// One datagram between processes of a host, optionally with a descriptor: SOCK_SEQPACKET Unix
// sockets, which preserve message boundaries and signal the end (man 7 unix).
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
  UniqueFd fd;           // received with it, or none
  bool lost_fd = false;  // there was one, but this process is out of descriptors
};

// Listens under a name of the abstract namespace, which belongs to the process's network namespace
// and leaves no file behind. Throws Error.
UniqueFd listen_local(const std::string& name);

// Connects at once or not at all: returns an empty UniqueFd and sets errno if nobody listens there.
UniqueFd connect_local(const std::string& name) noexcept;

// The process at the other end and its user, as of its listen or connect; uid -1 where the kernel
// gives none (man 7 unix: SO_PEERCRED).
ucred other_end(int socket) noexcept;

// False when the packet cannot be sent now, or ever (errno). Never blocks, raises no SIGPIPE.
bool send_packet(int socket, std::span<const std::byte> bytes, int descriptor = -1) noexcept;

// The next packet: nullopt when there is none yet; nbytes 0 when the other side is gone. Throws
// ProtocolError when the packet is longer than `into`.
std::optional<Packet> receive_packet(int socket, std::span<std::byte> into);

// Whether the other side has closed, died, or shut down its sending direction, even if unread data
// remains (man 2 poll: POLLRDHUP).
bool is_hung_up(int socket) noexcept;

}  // namespace zerohop::shm
