// How sessions and exposures end, and what happens to late or wrong answers.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "house.hpp"
#include "reported.hpp"

using namespace zerohop;
using namespace zerohop::shm;
using namespace zerohop::testing;

TEST_CASE("memory in which a client is at work stays until it no longer is, and nobody waits") {
  House house;
  auto room = std::make_unique<Room>(house, 4096);
  Guest guest(house);
  REQUIRE(send_packet(guest.socket.get(), std::as_bytes(std::span("?"))));
  CHECK(guest.is_shown_out());  // but still accesses memory
  const GenerationEntry entry =
      house.session()->open(room->exposure->key(), 0, soon()).mapping->entry;
  const std::weak_ptr<int> memory = room->memory;
  auto claim = std::make_unique<Hazards::Claim>(guest.hazards(), entry.slot);
  room.reset();  // returns although the claim is still held
  house.exposures->sweep();
  CHECK_FALSE(memory.expired());
  CHECK_FALSE(house.exposures->settle(entry, Deadline::after(Deadline::Seconds(0.01))));
  Room next(house, 4096);  // not in the slot that the guest believes it may use
  CHECK(house.session()->open(next.exposure->key(), 0, soon()).mapping->entry.slot != entry.slot);
  SUBCASE("it lets go") { claim.reset(); }
  SUBCASE("it dies") { guest.socket.reset(); }
  SUBCASE("it dies, and what it said last is unread") {
    REQUIRE(send_packet(guest.socket.get(), std::as_bytes(std::span("!"))));
    guest.socket.reset();
  }
  CHECK(house.exposures->settle(entry, soon()));
  CHECK(memory.expired());
  Room last(house, 4096);
  CHECK(house.session()->open(last.exposure->key(), 0, soon()).mapping->entry.slot == entry.slot);
}

TEST_CASE("closing reports whether a thread was stopped or a GPU has not got there") {
  const Reports reports;
  House house;
  auto room = std::make_unique<Room>(house, 4096);
  Guest guest(house);
  const GenerationEntry entry =
      house.session()->open(room->exposure->key(), 0, soon()).mapping->entry;
  const auto settle = [&] {
    reports.clear();
    return house.exposures->settle(entry, Deadline::after(Deadline::Seconds(0.01)));
  };
  auto claim = std::make_unique<Hazards::Claim>(guest.hazards(), entry.slot);
  room.reset();
  CHECK_FALSE(settle());
  CHECK(reports.all() == std::vector<std::string>{
                             "a process of this host was stopped while it copied from or to memory "
                             "that is being closed, and may finish that copy when it goes on"});
  guest.hazards().hold(entry.slot);
  claim.reset();
  CHECK_FALSE(settle());
  CHECK(reports.count("their stream has not reached them yet") == 1);
  guest.hazards().release(entry.slot);
  CHECK(settle());
  CHECK(reports.count() == 0);
}

TEST_CASE("closing waits for all clients at work, for a bounded time in total") {
  House house;
  std::vector<std::unique_ptr<Room>> rooms;
  Guest guest(house);
  const auto session = house.session();
  std::vector<std::unique_ptr<Hazards::Claim>> claims;
  for (int i = 0; i < 8; ++i) {
    rooms.push_back(std::make_unique<Room>(house, 4096));
    const std::uint32_t slot =
        session->open(rooms.back()->exposure->key(), 0, soon()).mapping->entry.slot;
    claims.push_back(std::make_unique<Hazards::Claim>(guest.hazards(), slot));
  }
  const auto begin = Deadline::Clock::now();
  house.exposures->close();
  CHECK(Deadline::Clock::now() - begin >= kLongestCopy);
  CHECK(Deadline::Clock::now() - begin < 4 * kLongestCopy);  // one after another: 8
  claims.clear();
  house.exposures->close();
}

TEST_CASE("a client that is gone is forgotten, though no other follows") {
  House house;
  const Token token = house.local_server.invite();
  auto session = enter(house.local_server.name(), token);
  auto client = house.local_server.dismiss(token);
  const std::weak_ptr<const LocalClient> known = client;
  client.reset();
  house.exposures->forget_gone();
  CHECK_FALSE(known.expired());  // it may still access the memory
  session.reset();
  house.exposures->forget_gone();
  CHECK(known.expired());  // and with it a socket and two pages
}

TEST_CASE("a dismissed client copies and puts nothing any more") {
  House house;
  Room room(house, 4096);
  const Token token = house.local_server.invite();
  const auto session = enter(house.local_server.name(), token);
  const auto mapping = session->open(room.exposure->key(), 0, soon()).mapping;
  auto bytes = pattern(4096);
  const Run run{reinterpret_cast<std::uintptr_t>(bytes.data()), room.address(), 4096};
  bool behind = false;
  const auto note = [&](std::byte*) { behind = true; };
  SUBCASE("by the owner") {
    const auto client = house.local_server.dismiss(token);
    REQUIRE(client);
    CHECK_FALSE(client->at_work());
    CHECK(session->copy(*mapping, Direction::write, std::span(&run, 1), note) == Copied::dismissed);
    CHECK(session->at_board(note) == Copied::dismissed);
    CHECK(copy(*session, *mapping, Direction::write, bytes.data(), room.address(), 4096).outcome ==
          Copied::dismissed);
  }
  SUBCASE("by itself") {
    session->end();
    CHECK(session->copy(*mapping, Direction::write, std::span(&run, 1), note) == Copied::left);
    CHECK(session->at_board(note) == Copied::left);
    CHECK(copy(*session, *mapping, Direction::read, bytes.data(), room.address(), 4096).outcome ==
          Copied::left);
  }
  CHECK_FALSE(behind);
  CHECK(std::count(room.data(), room.data() + 4096, std::byte{0}) == 4096);
}

TEST_CASE("a client is at work until it is done, at the board too, also when dismissed meanwhile") {
  House house;
  const Token token = house.local_server.invite();
  const auto session = enter(house.local_server.name(), token);
  std::shared_ptr<LocalClient> client;
  const auto outcome = session->at_board([&](std::byte*) {
    client = house.local_server.dismiss(token);
    CHECK(client->at_work());
  });
  CHECK(outcome == Copied::all);
  CHECK_FALSE(client->at_work());
}

TEST_CASE("a page of claims that is spoiled ends a copy, after a while") {
  House house;
  Room room(house, 4096);
  Guest guest(house);
  std::vector<std::unique_ptr<Hazards::Claim>> claims;
  for (std::size_t i = 0; i < Hazards::kClaims; ++i) {
    claims.push_back(std::make_unique<Hazards::Claim>(guest.hazards(), 7));
    CHECK(bool{*claims.back()});
  }
  const auto claims_one = [&] { return bool{Hazards::Claim(guest.hazards(), 7)}; };
  CHECK_FALSE(claims_one());
  claims.pop_back();
  CHECK(claims_one());
}

namespace {

// A local server whose owner sends what the test wants.
struct Host {
  Host() : listener(listen_local(kName)) {}
  // Admits the client, with a board of that size.
  void admit(std::uint64_t board_nbytes = kBoardNbytes) {
    pollfd waited{.fd = listener.get(), .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&waited, 1, 10'000) == 1);
    socket = UniqueFd::open([this] { return ::accept(listener.get(), nullptr, nullptr); });
    give(Gift::generations, generations);
    give(Gift::hazards, hazards);
    const Buffer board(board_nbytes);
    give(Gift::board, board);
  }
  void give(Gift gift, const Buffer& pages) {
    const Given given{.gift = gift, .nbytes = pages.nbytes()};
    REQUIRE(send_packet(socket.get(), bytes_of(given), pages.fd()));
  }
  Ask hear() {
    std::array<std::byte, 1024> bytes;
    std::size_t nbytes = 0;
    do {
      nbytes = wait_packet(socket.get(), bytes, soon()).nbytes;
    } while (nbytes == sizeof(Knock));
    return value_of<Ask>(std::span(bytes).first(nbytes));
  }
  void tell(const Ask& ask, std::uint64_t begin, std::uint64_t nbytes, int fd) {
    const Reply reply{.answer = Answer::offered,
                      .sequence = ask.sequence,
                      .key = ask.key,
                      .begin = begin,
                      .end = begin + nbytes,
                      .has_pages = 1};
    REQUIRE(send_packet(socket.get(), bytes_of(reply), fd));
  }
  static constexpr const char* kName = "zerohop-test-host";
  Buffer generations{GenerationTable::kNbytes};
  Buffer hazards{sizeof(Hazards)};
  UniqueFd listener;
  UniqueFd socket;
};

constexpr Deadline::Seconds kAtOnce{0};

}  // namespace

TEST_CASE("an answer that comes late is that to its own question") {
  Host host;
  const auto session = LocalSession::begin(Host::kName, Token{}, kBoardNbytes);
  CHECK_THROWS_AS(session->enter(Deadline::after(kAtOnce)), TransferTimeout);
  host.admit();
  session->enter(soon());
  CHECK_THROWS_AS(session->open(1, 0, Deadline::after(kAtOnce)).mapping, TransferTimeout);
  const Ask first = host.hear();
  CHECK(first.key == 1);
  CHECK_THROWS_AS(session->open(2, 0, Deadline::after(kAtOnce)).mapping, TransferTimeout);
  const Ask second = host.hear();
  CHECK(second.key == 2);
  const Buffer pages(4096);
  Ask wrong = second;
  wrong.sequence += 1000;
  host.tell(wrong, 77, 4096, pages.fd());       // answers no question at all
  host.tell(first, 0x10000, 4096, pages.fd());  // late
  CHECK_THROWS_AS(session->open(2, 0, Deadline::after(kAtOnce)).mapping, TransferTimeout);
  host.tell(second, 0x20000, 4096, pages.fd());
  CHECK(session->open(2, 0, soon()).mapping->begin == 0x20000);
  CHECK(session->find(1)->begin == 0x10000);
}

TEST_CASE("waiting for an answer blocks neither leaving nor cached answers") {
  Host host;
  const auto session = LocalSession::begin(Host::kName, Token{}, kBoardNbytes);
  host.admit();
  std::thread known([&] { CHECK(session->open(1, 0, soon()).mapping->begin == 0x10000); });
  const Buffer pages(4096);
  host.tell(host.hear(), 0x10000, 4096, pages.fd());
  known.join();
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.emplace_back(
        [&] { CHECK_THROWS_AS(session->open(2, 0, soon()).mapping, RouteUnavailable); });
  }
  CHECK(host.hear().key == 2);
  CHECK(session->open(1, 0, soon()).mapping->begin == 0x10000);
  const auto begin = Deadline::Clock::now();
  session->end();
  for (auto& thread : waiting) thread.join();
  CHECK(Deadline::Clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("pages of another size than they should have are refused") {
  Host host;
  const auto session = LocalSession::begin(Host::kName, Token{}, kBoardNbytes);
  SUBCASE("the board") {
    host.admit(kBoardNbytes / 2);
    CHECK_THROWS_AS(session->enter(soon()), RouteUnavailable);
  }
  SUBCASE("memory") {
    host.admit();
    CHECK_THROWS_AS(session->open(1, 0, Deadline::after(kAtOnce)).mapping, TransferTimeout);
    const Buffer pages(4096);
    host.tell(host.hear(), 0x10000, 8192, pages.fd());
    CHECK_THROWS_AS(session->open(1, 0, soon()).mapping, Error);
  }
}

TEST_CASE("the generation table cannot be made writable by its clients") {
  House house;
  Guest guest(house);
  const std::string path = "/proc/self/fd/" + std::to_string(guest.gift(Gift::generations));
  const UniqueFd again = UniqueFd::open([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC); });
  const int fd = again ? again.get() : guest.gift(Gift::generations);
  CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
  const std::uint64_t word = 1;
  CHECK(::pwrite(fd, &word, sizeof word, 0) < 0);
}

TEST_CASE("a client that leaves before it is admitted is no trouble") {
  const Reports reports;
  const Buffer board(kBoardNbytes);
  LocalServer local_server(std::make_shared<Exposures>(), board);
  {
    const UniqueFd socket = connect_local(local_server.name());
    REQUIRE(socket);
    REQUIRE(send_packet(socket.get(), bytes_of(Knock{.token = local_server.invite()})));
  }
  for (int i = 0; i < 4; ++i) CHECK(!local_server.serve());  // connects, is read, and gone
  CHECK(reports.count() == 0);
}
