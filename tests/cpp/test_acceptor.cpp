// Sockets of the control channel; and connections that have not identified themselves: bounded in
// number and in time, for every listener.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/acceptor.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "engine/channel/socket.hpp"
#include "eventually.hpp"
#include "process.hpp"
#include "reported.hpp"
#include "shm/packet.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;
using std::chrono::hours;
using std::chrono::seconds;

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
  const auto taken = thrown_by<Error>([&] { listen_tcp("127.0.0.1", local_port(listener.get())); });
  CHECK(taken.code() == EADDRINUSE);
  // 192.0.2.0/24 is reserved for documentation (RFC 5737): no host has it.
  const auto foreign = thrown_by<Error>([] { listen_tcp("192.0.2.1"); });
  CHECK(foreign.code() == EADDRNOTAVAIL);
  CHECK(contains(foreign.what(), "192.0.2.1:0"));
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
  const auto lost = thrown_by<PeerLost>([] { start_connect("255.255.255.255", 1); });
  CHECK(lost.code() == ENETUNREACH);
  CHECK(contains(lost.what(), "255.255.255.255:1"));
}

// The lowest free number of a descriptor.
rlim_t next_descriptor() {
  const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  REQUIRE(next);
  return static_cast<rlim_t>(next.get());
}

TEST_CASE("no descriptor left is an Error, and the connection waits until there is one") {
  const UniqueFd listener = listen_tcp("127.0.0.1");
  const UniqueFd connected = start_connect("127.0.0.1", local_port(listener.get()));
  REQUIRE(outcome_of_connecting(connected.get()) == 0);
  {
    const Lowered none(RLIMIT_NOFILE, next_descriptor());
    const bool accepted = static_cast<bool>(accept_connection(listener.get()));
    const int error = errno;
    CHECK_FALSE(accepted);
    CHECK(error == EMFILE);
    CHECK(thrown_by<Error>([] { start_connect("127.0.0.1", 1); }).code() == EMFILE);
  }
  CHECK(accept_one(listener.get()));
}

// --- pending connections ---

class Door final : public Acceptor::Owner {
 public:
  explicit Door(std::size_t most, int at_once = 1000)
      : name_("zerohop-test-acceptor-" + std::to_string(++doors)),
        acceptor(shm::listen_local(name_),
                 {.at_once = at_once, .most_pending = most, .patience = seconds(10)}, *this) {}

  void knock() {
    UniqueFd socket = shm::connect_local(name_);
    REQUIRE(socket);
    outside.push_back(std::move(socket));
  }
  void knock(int times) {
    for (int i = 0; i < times; ++i) knock();
  }

  void admit(UniqueFd connection) override {
    if (broken) throw std::runtime_error("it is broken");
    last = connection.get();
    inside.emplace(last, std::move(connection));
  }
  void turn_away(int fd, const char*) override {
    turned_away.push_back(fd);
    inside.erase(fd);
  }
  void watch_listener(bool watched) noexcept override { watches.push_back(watched); }

 private:
  static inline int doors = 0;
  const std::string name_;

 public:
  Acceptor acceptor;
  std::vector<UniqueFd> outside;
  std::map<int, UniqueFd> inside;
  std::vector<int> turned_away;
  std::vector<bool> watches;
  int last = -1;
  bool broken = false;
};

TEST_CASE("so many are accepted in one go, and no more") {
  Door door(100, 3);
  door.knock(5);
  door.acceptor.accept();
  CHECK(door.inside.size() == 3);
  door.acceptor.accept();
  CHECK(door.inside.size() == 5);
  door.acceptor.accept();
  CHECK(door.acceptor.pending() == 5);
}

TEST_CASE("too many pending connections: one is evicted, never an identified one") {
  Door door(4);
  door.knock(4);
  door.acceptor.accept();
  const int known = door.last;
  door.acceptor.settle(known);
  door.knock(10);
  door.acceptor.accept();
  CHECK(door.acceptor.pending() == 4);
  CHECK(door.turned_away.size() == 9);
  CHECK(door.inside.contains(known));
}

TEST_CASE("a connection with a greeting is evicted after those without") {
  Door door(4);
  door.knock(1);
  door.acceptor.accept();
  const int first = door.last;
  door.acceptor.prefer(first, Acceptor::Clock::now() + hours(1));
  door.knock(20);
  door.acceptor.accept();
  CHECK(door.inside.contains(first));
  CHECK(door.acceptor.pending() == 4);
}

TEST_CASE("where all have said something, one of them goes") {
  Door door(3);
  for (int i = 0; i < 5; ++i) {
    door.knock();
    door.acceptor.accept();
    door.acceptor.prefer(door.last, Acceptor::Clock::now() + hours(1));
  }
  CHECK(door.acceptor.pending() == 3);
  CHECK(door.turned_away.size() == 2);
}

TEST_CASE("a late connection is closed, and look() returns the time of the next call") {
  Door door(10);
  const auto before = Acceptor::Clock::now();
  door.knock(2);
  door.acceptor.accept();
  const int late = door.inside.begin()->first;
  const int patient = door.inside.rbegin()->first;
  door.acceptor.prefer(patient, before + hours(1));
  CHECK(door.acceptor.look(before) < before + hours(1));
  CHECK(door.turned_away.empty());
  CHECK(door.acceptor.look(before + seconds(60)) == before + hours(1));
  CHECK(door.turned_away == std::vector<int>{late});
  CHECK(door.acceptor.look(before + hours(2)) == Acceptor::Clock::time_point::max());
  CHECK(door.acceptor.pending() == 0);
}

TEST_CASE("out of descriptors it rests, and goes on") {
  Door door(1000);
  door.knock(3);
  (void)Error("UBSAN looks at the first object of a type through a pipe, which takes descriptors")
      .code();
  {
    const Lowered files(RLIMIT_NOFILE, next_descriptor() + 1);  // one more, then none
    CHECK(thrown_by<Error>([&] { door.acceptor.accept(); }).code() == EMFILE);
  }
  CHECK(door.watches == std::vector<bool>{false});
  const auto now = Acceptor::Clock::now();
  CHECK(door.acceptor.look(now - seconds(1)) < now + seconds(1));
  CHECK(door.watches == std::vector<bool>{false});
  (void)door.acceptor.look(now + seconds(1));
  CHECK(door.watches == std::vector<bool>{false, true});
  door.acceptor.accept();
  CHECK(door.inside.size() + door.turned_away.size() == 3);
}

TEST_CASE("a connection that cannot be admitted is closed and forgotten") {
  Door door(10);
  door.broken = true;
  door.knock(1);
  CHECK_THROWS_AS(door.acceptor.accept(), std::runtime_error);
  CHECK(door.acceptor.pending() == 0);
  CHECK(door.watches == std::vector<bool>{false});
}

}  // namespace
}  // namespace zerohop::testing
