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

#include "base/error.hpp"
#include "engine/socket.hpp"

namespace zerohop::engine {
namespace {

Deadline soon() { return Deadline::after(Deadline::Seconds{10}); }

// accept_tcp does not wait, so the test does.
UniqueFd accept_one(int listener) {
  pollfd wait{listener, POLLIN, 0};
  REQUIRE(::poll(&wait, 1, soon().remaining_ms()) == 1);
  return accept_tcp(listener);
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
  finish_connect(sockets.connected.get(), soon());
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

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t nbytes = sizeof(value);
  REQUIRE(::getsockopt(fd, level, name, &value, &nbytes) == 0);
  return value;
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

TEST_CASE("each end names the other") {
  const Connection sockets = connect_over("127.0.0.1");
  CHECK(remote_name(sockets.connected.get()) ==
        "127.0.0.1:" + std::to_string(local_port(sockets.listener.get())));
  CHECK(remote_name(sockets.accepted.get()) ==
        "127.0.0.1:" + std::to_string(local_port(sockets.connected.get())));
  CHECK(remote_name(sockets.listener.get()) == "an unknown host");
}

TEST_CASE("IPv6 works where the host has it, and its absence is an Error with the errno") {
  UniqueFd listener;
  try {
    listener = listen_tcp("::1");
  } catch (const Error& error) {
    // A kernel without IPv6 refuses the socket, one with it switched off the address.
    CHECK((error.code() == EAFNOSUPPORT || error.code() == EADDRNOTAVAIL));
    return;
  }
  const Connection sockets = connect_over("::1");
  CHECK(remote_name(sockets.connected.get()) ==
        "[::1]:" + std::to_string(local_port(sockets.listener.get())));
}

TEST_CASE("nobody waiting gives an empty descriptor") {
  const UniqueFd listener = listen_tcp("127.0.0.1");
  CHECK_FALSE(accept_tcp(listener.get()));
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

TEST_CASE("a refused connection is PeerLost with its errno") {
  UniqueFd listener = listen_tcp("127.0.0.1");
  const std::uint16_t port = local_port(listener.get());
  listener.reset();
  const UniqueFd fd = start_connect("127.0.0.1", port);
  const auto lost = failure_of<PeerLost>([&] { finish_connect(fd.get(), soon()); });
  CHECK(lost.code() == ECONNREFUSED);
}

TEST_CASE("no answer in time is PeerLost") {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
  const UniqueFd stuck(fds[0]);
  const UniqueFd other(fds[1]);
  // A full socket is not writable, just as one that still connects.
  const std::string filler(1 << 16, 'x');
  while (::send(stuck.get(), filler.data(), filler.size(), MSG_NOSIGNAL) > 0) {
  }
  REQUIRE(errno == EAGAIN);
  const auto lost = failure_of<PeerLost>(
      [&] { finish_connect(stuck.get(), Deadline::after(Deadline::Seconds{0.01})); });
  CHECK(lost.code() == ETIMEDOUT);
}

// Lowers the limit of open files to what is open now, while it lives.
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
  finish_connect(connected.get(), soon());
  {
    const NoMoreFiles none;
    CHECK(failure_of<Error>([&] { accept_tcp(listener.get()); }).code() == EMFILE);
    CHECK(failure_of<Error>([] { start_connect("127.0.0.1", 1); }).code() == EMFILE);
  }
  CHECK(accept_one(listener.get()));
}

}  // namespace
}  // namespace zerohop::engine
