// Connections that have not identified themselves: bounded in number and in time, for every
// listener.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/acceptor.hpp"
#include "base/error.hpp"
#include "shm/packet.hpp"

namespace zerohop {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

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
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = ::fcntl(door.acceptor.fd(), F_DUPFD_CLOEXEC, 0);
  REQUIRE(next >= 0);
  ::close(next);
  (void)Error("UBSAN looks at the first object of a type through a pipe, which takes descriptors")
      .code();
  // One more, then none.
  const rlimit few{static_cast<rlim_t>(next) + 1, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  int code = 0;
  try {
    door.acceptor.accept();
  } catch (const Error& error) {
    code = error.code();
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(code == EMFILE);
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
}  // namespace zerohop
