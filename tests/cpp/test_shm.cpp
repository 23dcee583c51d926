// The local server: who is admitted, what they receive, and what happens to memory when either of
// two processes ends, or is stopped, in mid-copy.
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

// --- two processes ---

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

TEST_CASE("closing waits for the running copy, and nothing is written afterwards") {
  House house;
  Room room(house, kNbytes);
  Pipe reported;
  Pipe tells;
  const Directions way = directions_to(house, room);
  const pid_t writer = start([&] { write_for_ever(reported, tells, std::byte{9}); });
  reported.put(way);
  REQUIRE(tells.get<Copied>() == Copied::all);
  const GenerationEntry entry = room.exposure->entry();
  room.exposure.reset();
  CHECK(house.exposures->settle(entry, soon()));
  std::fill(room.data(), room.data() + kNbytes, std::byte{0});
  CHECK(exit_code(writer) == 0);  // it noticed
  CHECK(is_all(room.data(), std::byte{0}));
}

TEST_CASE(
    "a client that was stopped in mid-copy writes nothing after it was dismissed and goes on") {
  House house;
  Room room(house, kNbytes);
  Pipe reported;
  Pipe tells;
  const Directions way = directions_to(house, room);
  const pid_t writer = start([&] { write_for_ever(reported, tells, std::byte{9}); });
  reported.put(way);
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
  CHECK(exit_code(writer) == 0);
  CHECK(is_all(room.data(), std::byte{0}));
}

TEST_CASE("closing does not wait for a client that was killed in mid-copy") {
  for (int round = 0; round < 5; ++round) {
    House house;
    Room room(house, kNbytes);
    Pipe reported;
    Pipe tells;
    const Directions way = directions_to(house, room);
    const pid_t writer = start([&] { write_for_ever(reported, tells, std::byte{9}); });
    reported.put(way);
    REQUIRE(tells.get<Copied>() == Copied::all);
    kill_and_wait(writer);
    const GenerationEntry entry = room.exposure->entry();
    room.exposure.reset();
    CHECK(house.exposures->settle(entry, Deadline::after(Deadline::Seconds(0))));
    std::fill(room.data(), room.data() + kNbytes, std::byte{0});
    CHECK(is_all(room.data(), std::byte{0}));
  }
}

// --- one process ---

TEST_CASE(
    "a token opens the local server to one session at a time, and not after it was withdrawn") {
  House house;
  Room room(house, 4096);
  Token wrong{};
  CHECK_THROWS_AS(enter(house.local_server.name(), wrong), RouteUnavailable);
  const Token token = house.local_server.invite();
  const auto first = enter(house.local_server.name(), token);
  const auto second = enter(house.local_server.name(), token);
  CHECK_THROWS_AS(first->open(room.exposure->key(), 0, soon()).mapping, RouteUnavailable);
  CHECK(second->open(room.exposure->key(), 0, soon()).mapping);
  house.local_server.dismiss(token);
  CHECK_THROWS_AS(enter(house.local_server.name(), token), RouteUnavailable);
}

TEST_CASE("nobody is there") {
  CHECK_THROWS_WITH_AS(enter("zerohop-nobody", Token{}),
                       "it is on another host, or in a network namespace (container) of its own",
                       RouteUnavailable);
}

TEST_CASE("only keys open memory, and only while its exposure lives") {
  House house;
  const auto session = house.session();
  auto room = std::make_unique<Room>(house, 4096);
  const std::uint64_t key = room->exposure->key();
  CHECK(session->open(key ^ 1, 0, soon()).mapping == nullptr);
  CHECK(session->open(0, 0, soon()).mapping == nullptr);
  room->exposure.reset();
  CHECK(session->open(key, 0, soon()).mapping == nullptr);
}

TEST_CASE("what is closed is not touched, even when its slot is used again") {
  House house;
  const auto session = house.session();
  auto bytes = pattern(4096);
  for (const bool has_pages : {true, false}) {
    Room old(house, 4096, has_pages);
    const auto mapping = session->open(old.exposure->key(), 0, soon()).mapping;
    old.exposure.reset();
    Room fresh(house, 4096, has_pages);
    const auto fresh_window = session->open(fresh.exposure->key(), 0, soon()).mapping;
    CHECK(fresh_window->entry.slot == mapping->entry.slot);
    for (const Direction direction : {Direction::write, Direction::read}) {
      const auto result = copy(*session, *mapping, direction, bytes.data(), old.address(), 4096);
      CHECK(result.outcome == Copied::revoked);
      CHECK(result.nbytes == 0);
    }
    CHECK(
        std::all_of(old.data(), old.data() + 4096, [](std::byte b) { return b == std::byte{0}; }));
    CHECK(copy(*session, *fresh_window, Direction::write, bytes.data(), fresh.address(), 4096)
              .outcome == Copied::all);
  }
}

TEST_CASE("memory that is only to be read cannot be mapped for writing") {
  House house;
  Room room(house, 4096, /*has_pages=*/true, /*writable=*/false);
  const auto session = house.session();
  CHECK_FALSE(session->open(room.exposure->key(), 0, soon()).mapping->writable);

  Guest rude(house);
  const auto map_writable = [](int fd) {
    return ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  };
  CHECK(map_writable(rude.gift(Gift::generations)) == MAP_FAILED);
  REQUIRE(
      send_packet(rude.socket.get(),
                  bytes_of(Ask{.wish = Wish::memory, .sequence = 1, .key = room.exposure->key()})));
  std::array<std::byte, 1024> bytes;
  const Packet packet = wait_packet(rude.socket.get(), bytes, soon());
  REQUIRE(packet.fd);
  CHECK(map_writable(packet.fd.get()) == MAP_FAILED);
  CHECK(::ftruncate(packet.fd.get(), 0) != 0);
}

TEST_CASE("pages that could shrink are not mapped") {
  const UniqueFd fd = UniqueFd::open([] { return ::memfd_create("test", MFD_CLOEXEC); });
  REQUIRE(::ftruncate(fd.get(), 4096) == 0);
  CHECK_THROWS_AS(Mapping(fd.get(), 4096, true), Error);
  const Buffer buffer(4096);
  CHECK_THROWS_AS(Mapping(buffer.fd(), 8192, true), Error);
  CHECK(Mapping(buffer.fd(), 4096, true).data() != nullptr);
}

TEST_CASE("strangers are shown out, however many, and guests are served meanwhile") {
  House house;
  Room room(house, 4096);
  const auto session = house.session();
  Stranger silent(house);
  Stranger loud(house);
  REQUIRE(send_packet(loud.socket.get(), std::as_bytes(std::span("knock, knock"))));
  CHECK(loud.is_shown_out());
  Stranger lengthy(house);
  REQUIRE(send_packet(lengthy.socket.get(), std::vector<std::byte>(5000)));
  CHECK(lengthy.is_shown_out());
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 100; ++i) {
    crowd.push_back(std::make_unique<Stranger>(house));
    if (i % 32 == 0) house.session();  // the listener's backlog is shorter than the crowd
  }
  house.session();  // all of them have come
  const auto out = std::ranges::count_if(crowd, [](const auto& s) { return s->is_out(); });
  CHECK(out >= 100 - 64 - 1);  // so many were evicted, chosen at random
  CHECK(out <= 100 - 64 + 3);  // sessions evict as well, from the 64th on
  // Not the oldest, as an attacker could want.
  CHECK_FALSE(std::ranges::is_partitioned(crowd, [](const auto& s) { return s->is_out(); }));
  CHECK(session->open(room.exposure->key(), 0, soon()).mapping);
}

TEST_CASE("a guest that sends nonsense is disconnected, and its claims are released") {
  House house;
  Room room(house, 4096);
  Guest guest(house);
  const auto mapping = house.session()->open(room.exposure->key(), 0, soon()).mapping;
  const Hazards::Claim claim(guest.hazards(), mapping->entry.slot);
  REQUIRE(send_packet(guest.socket.get(), std::as_bytes(std::span("?"))));
  CHECK(guest.is_shown_out());
  guest.socket.reset();
  const GenerationEntry entry = room.exposure->entry();
  room.exposure.reset();
  CHECK(house.exposures->settle(entry, Deadline::after(Deadline::Seconds(0))));
}

TEST_CASE("pages of closed memory are unmapped with the next opening") {
  House house;
  const auto session = house.session();
  auto old = std::make_unique<Room>(house, 4096);
  const std::weak_ptr<const RemoteMapping> mapping =
      session->open(old->exposure->key(), 0, soon()).mapping;
  CHECK(mapping.lock() != nullptr);
  old.reset();
  Room fresh(house, 4096);
  REQUIRE(session->open(fresh.exposure->key(), 0, soon()).mapping);
  CHECK(mapping.lock() == nullptr);
}

TEST_CASE(
    "when every slot of the generation table is taken nothing more is exposed, until one is free") {
  const auto exposures = std::make_shared<Exposures>();
  std::vector<std::shared_ptr<Exposure>> all;
  const Range range{.begin = 4096, .end = 8192, .writable = true};
  for (std::uint32_t i = 0; i < GenerationTable::kSlots; ++i)
    all.push_back(exposures->expose(range, {}, nullptr));
  CHECK(all.back() != nullptr);
  CHECK(exposures->expose(range, {}, nullptr) == nullptr);
  all.pop_back();
  CHECK(exposures->expose(range, {}, nullptr) != nullptr);
}

TEST_CASE("a client looks at what has ended, and at nothing else that it has open") {
  constexpr std::size_t kMany = GenerationTable::kKept + 500;
  House house;
  const auto session = house.session();
  std::vector<std::unique_ptr<Room>> rooms;
  std::vector<std::weak_ptr<const RemoteMapping>> mappings;
  for (std::size_t i = 0; i < kMany; ++i) {
    rooms.push_back(std::make_unique<Room>(house, 64, /*has_pages=*/false));
    mappings.push_back(session->open(rooms.back()->exposure->key(), 0, soon()).mapping);
  }
  const auto open_windows = [&] {
    return static_cast<std::size_t>(
        std::ranges::count_if(mappings, [](const auto& mapping) { return !mapping.expired(); }));
  };
  CHECK(session->forget_ended() == 0);
  rooms[7].reset();
  rooms[kMany / 2].reset();
  CHECK(session->forget_ended() == 2);
  CHECK(session->forget_ended() == 0);
  CHECK(mappings[7].expired());
  CHECK(open_windows() == kMany - 2);

  // More than the generation table keeps: then all mappings are visited, once.
  for (std::size_t i = 0; i < GenerationTable::kKept + 2; ++i) rooms[i].reset();
  CHECK(session->forget_ended() == kMany - 2);
  CHECK(session->forget_ended() == 0);
  CHECK(open_windows() == kMany - GenerationTable::kKept - 2);
  rooms.back().reset();
  CHECK(session->forget_ended() == 1);
  CHECK(mappings.back().expired());
}

}  // namespace
}  // namespace zerohop::testing
