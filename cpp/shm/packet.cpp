#include "shm/packet.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/scarcity.hpp"

namespace zerohop::shm {
namespace {

constexpr int kBacklog = 64;  // unanswered knocks

struct LocalAddress {
  sockaddr_un value{};
  socklen_t nbytes = 0;
};

// The first byte of an abstract name is 0, and its length is given by the address length.
LocalAddress abstract(const std::string& name) {
  LocalAddress address;
  address.value.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof address.value.sun_path - 1);
  std::memcpy(address.value.sun_path + 1, name.data(), length);
  address.nbytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

UniqueFd make_socket() noexcept {
  return UniqueFd::open(
      [] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

// The control data of a packet that carries one descriptor.
union OneDescriptor {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

int descriptor_in(msghdr& message) {
  const cmsghdr* control = CMSG_FIRSTHDR(&message);
  if (control == nullptr || control->cmsg_type != SCM_RIGHTS) return -1;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(control), sizeof descriptor);
  return descriptor;
}

}  // namespace

UniqueFd listen_local(const std::string& name) {
  UniqueFd socket = make_socket();
  const LocalAddress address = abstract(name);
  if (!socket ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.value), address.nbytes) !=
          0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    throw_scarce("a Unix socket for the processes of this host cannot be made", errno);
  }
  return socket;
}

UniqueFd connect_local(const std::string& name) noexcept {
  UniqueFd socket = make_socket();
  const LocalAddress address = abstract(name);
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.value),
                           address.nbytes) != 0) {
    return {};
  }
  return socket;
}

ucred other_end(int socket) noexcept {
  ucred found{};
  socklen_t nbytes = sizeof found;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &nbytes) == 0) return found;
  return {.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
}

bool send_packet(int socket, std::span<const std::byte> bytes, int descriptor) noexcept {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  OneDescriptor control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof descriptor);
    message.msg_control = &control;
    message.msg_controllen = sizeof control.bytes;
    std::memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

std::optional<Packet> receive_packet(int socket, std::span<std::byte> into) {
  iovec part{into.data(), into.size()};
  OneDescriptor control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  // CMSG_LEN, not CMSG_SPACE, in which the kernel would put two descriptors: accept one; the kernel
  // closes the rest.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  ssize_t nbytes = 0;
  Packet packet;
  packet.fd = UniqueFd::open([&] {
    nbytes = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    return nbytes < 0 ? -1 : descriptor_in(message);
  });
  if (nbytes < 0) {
    if (errno == EAGAIN || errno == EINTR) return std::nullopt;
    return packet;  // a reset connection counts as ended
  }
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    throw ProtocolError("a process of this host sent a packet that is too long");
  }
  packet.lost_fd = !packet.fd && (message.msg_flags & MSG_CTRUNC) != 0;
  packet.nbytes = static_cast<std::size_t>(nbytes);
  return packet;
}

bool is_hung_up(int socket) noexcept {
  pollfd asked{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return ::poll(&asked, 1, 0) == 1;
}

}  // namespace zerohop::shm
