// The TCP helpers of the control channel, over loopback.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <functional>
#include <string>

#include "base/acceptor.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "engine/channel/socket.hpp"

namespace zerohop::engine {
namespace {

Deadline soon() { return Deadline::after(Deadline::Seconds{10}); }

// accept_connection() does not block, so the test waits.
UniqueFd accept_one(int listener) {
  pollfd wait{listener, POLLIN, 0};
  REQUIRE(::poll(&wait, 1, soon().remaining_ms()) == 1);
  UniqueFd fd = accept_connection(listener);
  if (fd) set_stream_options(fd.get());
  return fd;
}

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t nbytes = sizeof(value);
  REQUIRE(::getsockopt(fd, level, name, &value, &nbytes) == 0);
  return value;
}

// The errno with which connecting ended, 0 for success.
int outcome_of_connecting(int fd) {
  pollfd wait{fd, POLLOUT, 0};
  REQUIRE(::poll(&wait, 1, soon().remaining_ms()) == 1);
  return option(fd, SOL_SOCKET, SO_ERROR);
}

struct Connection {
  UniqueFd listener;
  UniqueFd connected;
  UniqueFd accepted;
};

Connection connect_over(const std::string& host) {
  Connection sockets;
  sockets.listener = listen_tcp(host);
  sockets.connected = start_connect(host, local_port(sockets.listener.get()));
  REQUIRE(outcome_of_connecting(sockets.connected.get()) == 0);
  sockets.accepted = accept_one(sockets.listener.get());
  REQUIRE(sockets.accepted);
  return sockets;
}

template <class Failure>
Failure failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Failure& failure) {
    return failure;
  }
  FAIL("nothing was thrown");
  return Failure("");
}

TEST_CASE("bytes pass between the two ends") {
  const Connection sockets = connect_over("127.0.0.1");
  REQUIRE(::send(sockets.connected.get(), "hello", 5, 0) == 5);
  pollfd wait{sockets.accepted.get(), POLLIN, 0};
  REQUIRE(::poll(&wait, 1, soon().remaining_ms()) == 1);
  char text[16] = {};
  CHECK(::recv(sockets.accepted.get(), text, sizeof(text), 0) == 5);
  CHECK(std::string(text) == "hello");
}

TEST_CASE("both ends have the options of a control connection") {
  const Connection sockets = connect_over("127.0.0.1");
  for (const int fd : {sockets.connected.get(), sockets.accepted.get()}) {
    CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(option(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
    CHECK(option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
  }
  CHECK((::fcntl(sockets.listener.get(), F_GETFL) & O_NONBLOCK) != 0);
  CHECK((::fcntl(sockets.listener.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("IPv6 works where the host has it, and its absence is an Error with the errno") {
  UniqueFd listener;
  try {
    listener = listen_tcp("::1");
  } catch (const Error& error) {
    // A kernel without IPv6 refuses the socket; one with IPv6 switched off refuses the address.
    CHECK((error.code() == EAFNOSUPPORT || error.code() == EADDRNOTAVAIL));
    return;
  }
  const Connection sockets = connect_over("::1");
  CHECK(local_port(sockets.accepted.get()) == local_port(sockets.listener.get()));
}

TEST_CASE("nobody waiting gives an empty descriptor") {
  const UniqueFd listener = listen_tcp("127.0.0.1");
  CHECK_FALSE(accept_connection(listener.get()));
}

TEST_CASE("names are not looked up") {
  for (const char* host : {"localhost", "", "10.0.0.0.5", "256.1.1.1", "fe80::1::2"}) {
    INFO("host '" << std::string(host) << "'");
    CHECK_THROWS_AS(listen_tcp(host), ProtocolError);
    CHECK_THROWS_AS(start_connect(host, 1), ProtocolError);
  }
}

TEST_CASE("an address that cannot be listened on is an Error with the errno") {
  const UniqueFd listener = listen_tcp("127.0.0.1");
  const auto taken =
      failure_of<Error>([&] { listen_tcp("127.0.0.1", local_port(listener.get())); });
  CHECK(taken.code() == EADDRINUSE);
  // 192.0.2.0/24 is reserved for documentation (RFC 5737): no host has it.
  const auto foreign = failure_of<Error>([] { listen_tcp("192.0.2.1"); });
  CHECK(foreign.code() == EADDRNOTAVAIL);
  CHECK(std::string(foreign.what()).find("192.0.2.1:0") != std::string::npos);
}

TEST_CASE("a connection that is refused at once throws nothing: the socket reports it") {
  UniqueFd listener = listen_tcp("127.0.0.1");
  const std::uint16_t port = local_port(listener.get());
  listener.reset();
  const UniqueFd fd = start_connect("127.0.0.1", port);
  CHECK(outcome_of_connecting(fd.get()) == ECONNREFUSED);
}

TEST_CASE("what the network refuses before it tries is PeerLost with its errno") {
  // A broadcast address is invalid for TCP (man 2 connect; Linux: ENETUNREACH).
  const auto lost = failure_of<PeerLost>([] { start_connect("255.255.255.255", 1); });
  CHECK(lost.code() == ENETUNREACH);
  CHECK(std::string(lost.what()).find("255.255.255.255:1") != std::string::npos);
}

// Lowers the limit of open files to the current number, for its lifetime.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));  // gets the lowest free number
    REQUIRE(next);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(next.get());
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  }
  ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_CASE("no descriptor left is an Error, and the connection waits until there is one") {
  const UniqueFd listener = listen_tcp("127.0.0.1");
  const UniqueFd connected = start_connect("127.0.0.1", local_port(listener.get()));
  REQUIRE(outcome_of_connecting(connected.get()) == 0);
  {
    const NoMoreFiles none;
    const bool accepted = static_cast<bool>(accept_connection(listener.get()));
    const int error = errno;
    CHECK_FALSE(accepted);
    CHECK(error == EMFILE);
    CHECK(failure_of<Error>([] { start_connect("127.0.0.1", 1); }).code() == EMFILE);
  }
  CHECK(accept_one(listener.get()));
}

}  // namespace
}  // namespace zerohop::engine
