// The local server: what happens to memory when either of two processes ends, or is stopped, in
// mid-copy.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

#include "base/error.hpp"
#include "house.hpp"
#include "process.hpp"

namespace zerohop::testing {
namespace {

using namespace shm;

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
  CHECK(exit_code(child) == 128 + SIGKILL);
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
void write_for_ever(Pipe& reported, Pipe& tells, std::byte value) {
  const auto to = reported.get<Directions>();
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

bool is_all(const std::byte* bytes, std::byte value) {
  return std::all_of(bytes, bytes + kNbytes, [=](std::byte byte) { return byte == value; });
}

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

// A room, and a process that has begun to fill it again and again.
struct FilledRoom {
  FilledRoom() {
    reported.put(way);
    REQUIRE(tells.get<Copied>() == Copied::all);
  }
  // Stops the writer, and ends its session.
  std::shared_ptr<LocalClient> stop() {
    ::kill(writer, SIGSTOP);
    int status = 0;
    REQUIRE(::waitpid(writer, &status, WUNTRACED) == writer);
    auto client = house.local_server.dismiss(way.token);
    REQUIRE(client);
    return client;
  }
  // Whether all copies have ended by then.
  bool close(const Deadline& deadline) {
    const GenerationEntry entry = room.exposure->entry();
    room.exposure.reset();
    return house.exposures->settle(entry, deadline);
  }
  void clear() { std::fill(room.data(), room.data() + kNbytes, std::byte{0}); }

  House house;
  Room room{house, kNbytes};
  Pipe reported, tells;
  const Directions way = directions_to(house, room);
  const pid_t writer = start([&] { write_for_ever(reported, tells, std::byte{9}); });
};

TEST_CASE("closing waits for the running copy, and nothing is written afterwards") {
  FilledRoom filled;
  CHECK(filled.close(soon()));
  filled.clear();
  CHECK(exit_code(filled.writer) == 0);  // it noticed
  CHECK(is_all(filled.room.data(), std::byte{0}));
}

TEST_CASE(
    "a client that was stopped in mid-copy writes nothing after it was dismissed and goes on") {
  FilledRoom filled;
  const auto client = filled.stop();
  ::kill(filled.writer, SIGCONT);
  // The piece that it had claimed may still arrive; then it notices.
  CHECK(await_copies([&] { return !client->at_work(); }, soon()));
  filled.clear();
  CHECK(exit_code(filled.writer) == 0);
  CHECK(is_all(filled.room.data(), std::byte{0}));
}

TEST_CASE("closing does not wait for a client that stays stopped in mid-copy") {
  bool was_at_work = false;
  for (int round = 0; round < 50 && !was_at_work; ++round) {
    FilledRoom filled;
    was_at_work = filled.stop()->at_work();  // else it was stopped between two copies
    const Deadline deadline = soon();
    CHECK(filled.close(deadline) == !was_at_work);
    CHECK(!deadline.passed());
    kill_and_wait(filled.writer);
  }
  CHECK(was_at_work);
}

TEST_CASE("closing does not wait for a client that was killed in mid-copy") {
  for (int round = 0; round < 5; ++round) {
    FilledRoom filled;
    kill_and_wait(filled.writer);
    CHECK(filled.close(Deadline::after(Deadline::Seconds(0))));
    filled.clear();
    CHECK(is_all(filled.room.data(), std::byte{0}));
  }
}

}  // namespace
}  // namespace zerohop::testing
