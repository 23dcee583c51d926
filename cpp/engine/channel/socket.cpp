#include "engine/channel/socket.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "base/error.hpp"
#include "base/scarcity.hpp"

namespace zerohop::engine {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList parse_literal(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (status != 0) {
    throw ProtocolError("'" + host +
                        "' is not usable as an IPv4 or IPv6 address: " + ::gai_strerror(status));
  }
  return {list, &::freeaddrinfo};
}

std::string place(const std::string& host, std::uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

void set_option(int fd, int level, int option, int value) {
  // If an option is refused, only latency or the detection of a dead host suffers, not correctness:
  // heartbeats watch the connection. Sockets that are not TCP (tests use pairs) refuse all of
  // these.
  (void)::setsockopt(fd, level, option, &value, sizeof(value));
}

UniqueFd open_socket(int family) {
  UniqueFd fd = UniqueFd::open(
      [family] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (!fd) throw_scarce("cannot open a TCP socket", errno);
  return fd;
}

[[noreturn]] void throw_unreachable(const std::string& where, int error_number) {
  throw PeerLost(errno_message("cannot connect to " + where, error_number) +
                     "; check that the process behind the address still runs and that its host and "
                     "port can be reached from here",
                 error_number);
}

// The result of getsockname; the port is 0 for any other kind of socket.
struct SocketName {
  sockaddr_storage storage{};
  socklen_t nbytes = sizeof(storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }

  std::uint16_t port() const {
    if (storage.ss_family == AF_INET) {
      return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
    }
    if (storage.ss_family == AF_INET6) {
      return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
    }
    return 0;
  }
};

}  // namespace

void set_stream_options(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // Ends connections that no heartbeat watches yet, about 8 s after the other host vanished.
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

UniqueFd listen_tcp(const std::string& host, std::uint16_t port) {
  const AddressList address = parse_literal(host, port);
  UniqueFd fd = open_socket(address->ai_family);
  // Lets a fixed port be reused while connections of the previous process linger.
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), address->ai_addr, address->ai_addrlen) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    throw Error(errno_message("cannot listen on " + place(host, port), errno) +
                    "; choose an address of this host and a free port",
                errno);
  }
  return fd;
}

std::uint16_t local_port(int fd) {
  SocketName name;
  if (::getsockname(fd, name.get(), &name.nbytes) != 0) {
    throw Error(errno_message("getsockname failed", errno), errno);
  }
  return name.port();
}

UniqueFd start_connect(const std::string& host, std::uint16_t port) {
  const AddressList address = parse_literal(host, port);
  UniqueFd fd = open_socket(address->ai_family);
  set_stream_options(fd.get());
  // EINTR: the attempt continues in the background, as with EINPROGRESS (man 2 connect).
  if (::connect(fd.get(), address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    throw_unreachable(place(host, port), errno);
  }
  return fd;
}

}  // namespace zerohop::engine
