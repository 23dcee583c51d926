// The doorway: who is let in, what is given, and how copies reach memory of another process.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"
#include "house.hpp"
#include "ipc/packet.hpp"

using namespace zerohop;
using namespace zerohop::ipc;
using namespace zerohop::testing;

namespace {

std::vector<std::byte> pattern(std::size_t nbytes, unsigned seed = 1) {
  std::vector<std::byte> bytes(nbytes);
  for (std::size_t i = 0; i < nbytes; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed);
  return bytes;
}

// A visitor without any manners.
struct Stranger {
  explicit Stranger(const House& house) : socket(connect_local(house.doorway.name())) {
    REQUIRE(socket);
  }
  bool is_shown_out() {
    std::array<std::byte, 256> bytes;
    return wait_packet(socket.get(), bytes, soon()).nbytes == 0;
  }
  UniqueFd socket;
};

// A visitor who looks into its pages by itself.
struct Guest : Stranger {
  explicit Guest(House& house) : Stranger(house) {
    REQUIRE(send_packet(socket.get(), bytes_of(Knock{.token = house.doorway.invite()})));
    std::array<std::byte, 256> bytes;
    for (std::uint32_t gift = 0; gift < kGifts; ++gift) {
      gifts[gift] = wait_packet(socket.get(), bytes, soon()).fd;
    }
    page = std::make_unique<Mapping>(gift(Gift::hazards), sizeof(Hazards), /*writable=*/true);
  }
  int gift(Gift which) const { return gifts[static_cast<std::size_t>(which)].get(); }
  Hazards& hazards() { return *reinterpret_cast<Hazards*>(page->data()); }

  std::array<UniqueFd, kGifts> gifts;
  std::unique_ptr<Mapping> page;
};

}  // namespace

TEST_CASE("bytes are written and read, whatever the memory and however scattered") {
  House house;
  const auto visit = house.visit();
  for (const bool has_pages : {true, false}) {
    CAPTURE(has_pages);
    Room room(house, 1 << 20, has_pages);
    const auto window = visit->open(room.exposure->key(), kSoon);
    REQUIRE(window);
    CHECK((window->pages != nullptr) == has_pages);
    auto source = pattern(1 << 20);
    const auto written =
        copy(*visit, *window, Direction::write, source.data(), room.address(), source.size());
    CHECK(written.outcome == Copied::all);
    CHECK(written.nbytes == source.size());
    CHECK(std::memcmp(room.data(), source.data(), source.size()) == 0);

    // 3 of every 8 bytes, 1000 times: one run each.
    const std::array<std::int64_t, 2> shape{1000, 3};
    Layout theirs =
        Layout::contiguous(room.address(), DType{.code = kDTypeUInt, .bits = 8, .lanes = 1}, shape);
    theirs.strides[0] = 8;
    std::vector<std::byte> packed(3000);
    const Layout ours =
        Layout::contiguous(reinterpret_cast<std::uintptr_t>(packed.data()), theirs.dtype, shape);
    const auto read = copy(*visit, *window, Direction::read, ours, theirs);
    CHECK(read.outcome == Copied::all);
    CHECK(read.nbytes == packed.size());
    for (std::size_t i = 0; i < packed.size(); ++i) {
      REQUIRE(packed[i] == source[i / 3 * 8 + i % 3]);
    }
  }
}

TEST_CASE("the board is shared, and the bell rings") {
  House house;
  const auto visit = house.visit();
  visit->board()[7] = std::byte{42};
  CHECK(house.board.data()[7] == std::byte{42});
  visit->ring();
  pollfd bell{.fd = house.bell.fd(), .events = POLLIN, .revents = 0};
  CHECK(::poll(&bell, 1, 10'000) == 1);
}

TEST_CASE("a token opens the doorway to one visit at a time, and not after it was withdrawn") {
  House house;
  Room room(house, 4096);
  Token wrong{};
  CHECK_THROWS_AS(Visit::begin(house.doorway.name(), wrong, soon()), RouteUnavailable);
  const Token token = house.doorway.invite();
  const auto first = Visit::begin(house.doorway.name(), token, soon());
  const auto second = Visit::begin(house.doorway.name(), token, soon());
  CHECK_THROWS_AS(first->open(room.exposure->key(), kSoon), RouteUnavailable);
  CHECK(second->open(room.exposure->key(), kSoon));
  house.doorway.dismiss(token);
  CHECK_THROWS_AS(Visit::begin(house.doorway.name(), token, soon()), RouteUnavailable);
}

TEST_CASE("nobody is there") {
  CHECK_THROWS_WITH_AS(Visit::begin("zerohop-nobody", Token{}, soon()),
                       "it is on another host, or in a network namespace (container) of its own",
                       RouteUnavailable);
}

TEST_CASE("who was dismissed is given nothing any more") {
  House house;
  Room room(house, 4096);
  const Token token = house.doorway.invite();
  const auto visit = Visit::begin(house.doorway.name(), token, soon());
  house.doorway.dismiss(token);
  CHECK_THROWS_AS(visit->open(room.exposure->key(), kSoon), RouteUnavailable);
}

TEST_CASE("only keys open memory, and only while its exposure lives") {
  House house;
  const auto visit = house.visit();
  auto room = std::make_unique<Room>(house, 4096);
  const std::uint64_t key = room->exposure->key();
  CHECK(visit->open(key ^ 1, kSoon) == nullptr);
  CHECK(visit->open(0, kSoon) == nullptr);
  room->exposure.reset();
  CHECK(visit->open(key, kSoon) == nullptr);
}

TEST_CASE("what is closed is not touched, even when its slot is used again") {
  House house;
  const auto visit = house.visit();
  auto bytes = pattern(4096);
  for (const bool has_pages : {true, false}) {
    Room old(house, 4096, has_pages);
    const auto window = visit->open(old.exposure->key(), kSoon);
    old.exposure.reset();
    Room fresh(house, 4096, has_pages);
    const auto fresh_window = visit->open(fresh.exposure->key(), kSoon);
    CHECK(fresh_window->entry.slot == window->entry.slot);
    for (const Direction direction : {Direction::write, Direction::read}) {
      const auto result = copy(*visit, *window, direction, bytes.data(), old.address(), 4096);
      CHECK(result.outcome == Copied::revoked);
      CHECK(result.nbytes == 0);
    }
    CHECK(
        std::all_of(old.data(), old.data() + 4096, [](std::byte b) { return b == std::byte{0}; }));
    CHECK(copy(*visit, *fresh_window, Direction::write, bytes.data(), fresh.address(), 4096)
              .outcome == Copied::all);
  }
}

TEST_CASE("memory that is only to be read cannot be mapped for writing") {
  House house;
  Room room(house, 4096, /*has_pages=*/true, /*writable=*/false);
  const auto visit = house.visit();
  CHECK_FALSE(visit->open(room.exposure->key(), kSoon)->writable);

  Guest rude(house);
  const auto map_writable = [](int fd) {
    return ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  };
  CHECK(map_writable(rude.gift(Gift::ledger)) == MAP_FAILED);
  REQUIRE(send_packet(rude.socket.get(), bytes_of(Ask{.key = room.exposure->key()})));
  std::array<std::byte, 256> bytes;
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
  const auto visit = house.visit();
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
    if (i % 32 == 0) house.visit();  // the listener's backlog is shorter than the crowd
  }
  CHECK(silent.is_shown_out());  // the oldest made room
  CHECK(visit->open(room.exposure->key(), kSoon));
}

TEST_CASE("a guest who talks nonsense is shown out, and what it claimed is nobody's") {
  House house;
  Room room(house, 4096);
  Guest guest(house);
  const auto window = house.visit()->open(room.exposure->key(), kSoon);
  const Hazards::Claim claim(guest.hazards(), window->entry.slot);
  REQUIRE(send_packet(guest.socket.get(), std::as_bytes(std::span("?"))));
  CHECK(guest.is_shown_out());
  guest.socket.reset();
  const auto begin = Deadline::Clock::now();
  room.exposure.reset();  // does not wait for a claim of who is gone
  CHECK(Deadline::Clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("closing waits for a visitor at work, even one that was dismissed, but not for ever") {
  House house;
  Room room(house, 4096);
  Guest guest(house);
  REQUIRE(send_packet(guest.socket.get(), std::as_bytes(std::span("?"))));
  CHECK(guest.is_shown_out());
  const auto window = house.visit()->open(room.exposure->key(), kSoon);
  const Hazards::Claim claim(guest.hazards(), window->entry.slot);
  const auto begin = Deadline::Clock::now();
  room.exposure.reset();
  CHECK(Deadline::Clock::now() - begin >= std::chrono::seconds(5));
  Room next(house, 4096);  // not in the slot of which the guest believes that it may use it
  CHECK(house.visit()->open(next.exposure->key(), kSoon)->entry.slot != window->entry.slot);
}

TEST_CASE("pages of closed memory are unmapped with the next opening") {
  House house;
  const auto visit = house.visit();
  auto old = std::make_unique<Room>(house, 4096);
  const std::weak_ptr<const Window> window = visit->open(old->exposure->key(), kSoon);
  CHECK(window.lock() != nullptr);
  old.reset();
  Room fresh(house, 4096);
  REQUIRE(visit->open(fresh.exposure->key(), kSoon));
  CHECK(window.lock() == nullptr);
}

TEST_CASE("when every slot of the ledger is taken nothing more is exposed, until one is free") {
  const auto exposures = std::make_shared<Exposures>();
  std::vector<std::shared_ptr<Exposure>> all;
  const Range range{.begin = 4096, .end = 8192, .writable = true};
  for (std::uint32_t i = 0; i < Ledger::kSlots; ++i) all.push_back(exposures->expose(range, -1));
  CHECK(all.back() != nullptr);
  CHECK(exposures->expose(range, -1) == nullptr);
  all.pop_back();
  CHECK(exposures->expose(range, -1) != nullptr);
}
