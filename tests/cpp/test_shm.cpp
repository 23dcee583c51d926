// The local server: who is admitted, and what they receive.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "house.hpp"

namespace zerohop::testing {
namespace {

using namespace shm;

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
