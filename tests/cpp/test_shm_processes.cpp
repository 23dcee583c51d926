// Two processes: what happens to memory when either one ends, or is stopped, in mid-copy.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <string_view>

#include "base/error.hpp"
#include "house.hpp"
#include "shm/packet.hpp"

using namespace zerohop;
using namespace zerohop::shm;
using namespace zerohop::testing;

namespace {

constexpr std::uint64_t kNbytes = std::uint64_t{32} << 20;

// What the owner of a room sends to a client.
struct Directions {
  char name[64];
  Token token;
  std::uint64_t key;
  std::uint64_t address;
};

class Pipe {
 public:
  Pipe() { REQUIRE(::pipe(ends_) == 0); }
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  template <typename T>
  void put(const T& value) {
    if (::write(ends_[1], &value, sizeof value) != sizeof value) std::abort();
  }
  template <typename T>
  T get() {
    T value;
    if (::read(ends_[0], &value, sizeof value) != sizeof value) std::abort();
    return value;
  }

 private:
  int ends_[2];
};

template <typename Body>
pid_t start(Body body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    body();
    ::_exit(0);
  }
  return child;
}

void kill_and_wait(pid_t child) {
  ::kill(child, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
}

Directions directions_to(House& house, Room& room) {
  Directions directions{};
  std::strncpy(directions.name, house.local_server.name().c_str(), sizeof directions.name - 1);
  directions.token = house.local_server.invite();
  directions.key = room.exposure->key();
  directions.address = room.address();
  return directions;
}

// A process with a room, which sends the way in and then waits to be ended.
void own(Pipe& pipe, bool has_pages) {
  House house;
  Room room(house, kNbytes, has_pages);
  pipe.put(directions_to(house, room));
  for (;;) ::pause();
}

// A process that fills the room it is given with `value`, repeatedly.
void write_for_ever(Pipe& told, Pipe& tells, std::byte value) {
  const auto to = told.get<Directions>();
  const auto session = enter(to.name, to.token);
  const auto mapping = session->open(to.key, 0, soon()).mapping;
  std::vector<std::byte> source(kNbytes, value);
  for (bool first = true;; first = false) {
    const auto result =
        copy(*session, *mapping, Direction::write, source.data(), to.address, kNbytes);
    if (first) tells.put(result.outcome);
    if (result.outcome != Copied::all) break;
  }
}

// What a process of another user finds at a local server for which it has the token.
struct Turned {
  bool away_by_itself;
  bool away_at_the_local_server;
};

void come_as_nobody(Pipe& told, Pipe& tells) {
  const auto to = told.get<Directions>();
  constexpr uid_t kNobody = 65534;
  if (::setresuid(kNobody, kNobody, kNobody) != 0) std::abort();
  Turned turned{};
  try {
    LocalSession::begin(to.name, to.token, kBoardNbytes);
  } catch (const RouteUnavailable& error) {
    turned.away_by_itself =
        std::string_view(error.what()).find("another user's") != std::string_view::npos;
  }
  const UniqueFd socket = connect_local(to.name);
  send_packet(socket.get(), bytes_of(Knock{.token = to.token}));
  pollfd waited{.fd = socket.get(), .events = POLLIN, .revents = 0};
  std::array<std::byte, 1024> bytes;
  turned.away_at_the_local_server = ::poll(&waited, 1, soon().remaining_ms()) == 1 &&
                                    receive_packet(socket.get(), bytes)->nbytes == 0;
  tells.put(turned);
}

bool is_all(const std::byte* bytes, std::byte value) {
  return std::all_of(bytes, bytes + kNbytes, [=](std::byte byte) { return byte == value; });
}

}  // namespace

TEST_CASE("the memory of an owner that was killed is no other process's") {
  for (const bool has_pages : {true, false}) {
    CAPTURE(has_pages);
    Pipe pipe;
    const pid_t owner = start([&] { own(pipe, has_pages); });
    const auto to = pipe.get<Directions>();
    const auto session = enter(to.name, to.token);
    const auto mapping = session->open(to.key, 0, soon()).mapping;
    REQUIRE(mapping);
    std::vector<std::byte> source(kNbytes, std::byte{5});
    CHECK(copy(*session, *mapping, Direction::write, source.data(), to.address, kNbytes).outcome ==
          Copied::all);
    kill_and_wait(owner);
    const auto after =
        copy(*session, *mapping, Direction::write, source.data(), to.address, kNbytes);
    // Mapped pages live as long as the mapping; memory of a process ends with it.
    CHECK(after.outcome == (has_pages ? Copied::all : Copied::gone));
    CHECK_THROWS_AS(session->open(to.key + 1, 0, soon()).mapping, RouteUnavailable);
  }
}

TEST_CASE("an owner killed in mid-copy is noticed") {
  Pipe pipe;
  const pid_t owner = start([&] { own(pipe, /*has_pages=*/false); });
  const auto to = pipe.get<Directions>();
  const auto session = enter(to.name, to.token);
  const auto mapping = session->open(to.key, 0, soon()).mapping;
  std::vector<std::byte> source(kNbytes, std::byte{5});
  std::atomic<int> copies{0};
  Copied last = Copied::all;
  std::thread writer([&] {
    while (last == Copied::all) {
      last = copy(*session, *mapping, Direction::write, source.data(), to.address, kNbytes).outcome;
      copies.fetch_add(1);
    }
  });
  while (copies.load() < 3) std::this_thread::yield();
  kill_and_wait(owner);
  writer.join();
  const bool ended = last == Copied::gone || last == Copied::unmapped;
  CHECK(ended);
}

TEST_CASE("closing waits for the running copy, and nothing is written afterwards") {
  House house;
  Room room(house, kNbytes);
  Pipe told;
  Pipe tells;
  const Directions way = directions_to(house, room);
  const pid_t writer = start([&] { write_for_ever(told, tells, std::byte{9}); });
  told.put(way);
  REQUIRE(tells.get<Copied>() == Copied::all);
  const GenerationEntry entry = room.exposure->entry();
  room.exposure.reset();
  CHECK(house.exposures->settle(entry, soon()));
  std::fill(room.data(), room.data() + kNbytes, std::byte{0});
  int status = 0;
  REQUIRE(::waitpid(writer, &status, 0) == writer);  // it noticed
  CHECK(is_all(room.data(), std::byte{0}));
}

TEST_CASE(
    "a client that was stopped in mid-copy writes nothing after it was dismissed and goes on") {
  House house;
  Room room(house, kNbytes);
  Pipe told;
  Pipe tells;
  const Directions way = directions_to(house, room);
  const pid_t writer = start([&] { write_for_ever(told, tells, std::byte{9}); });
  told.put(way);
  REQUIRE(tells.get<Copied>() == Copied::all);
  ::kill(writer, SIGSTOP);
  int status = 0;
  REQUIRE(::waitpid(writer, &status, WUNTRACED) == writer);
  const auto client = house.local_server.dismiss(way.token);
  REQUIRE(client);
  ::kill(writer, SIGCONT);
  // The piece that it had claimed may still arrive; then it notices.
  CHECK(await_copies([&] { return !client->at_work(); }, soon()));
  std::fill(room.data(), room.data() + kNbytes, std::byte{0});
  REQUIRE(::waitpid(writer, &status, 0) == writer);
  CHECK(is_all(room.data(), std::byte{0}));
}

TEST_CASE("closing does not wait for a client that was killed in mid-copy") {
  for (int round = 0; round < 5; ++round) {
    House house;
    Room room(house, kNbytes);
    Pipe told;
    Pipe tells;
    const Directions way = directions_to(house, room);
    const pid_t writer = start([&] { write_for_ever(told, tells, std::byte{9}); });
    told.put(way);
    REQUIRE(tells.get<Copied>() == Copied::all);
    kill_and_wait(writer);
    const GenerationEntry entry = room.exposure->entry();
    room.exposure.reset();
    CHECK(house.exposures->settle(entry, Deadline::after(Deadline::Seconds(0))));
    std::fill(room.data(), room.data() + kNbytes, std::byte{0});
    CHECK(is_all(room.data(), std::byte{0}));
  }
}

TEST_CASE("a process of another user is not let in, though it has the token" *
          doctest::skip(::geteuid() != 0)) {
  House house;
  Room room(house, kNbytes);
  Pipe told;
  Pipe tells;
  const pid_t nobody = start([&] { come_as_nobody(told, tells); });
  told.put(directions_to(house, room));
  const auto turned = tells.get<Turned>();
  CHECK(turned.away_by_itself);
  CHECK(turned.away_at_the_local_server);
  int status = 0;
  REQUIRE(::waitpid(nobody, &status, 0) == nobody);
  CHECK(status == 0);
}
