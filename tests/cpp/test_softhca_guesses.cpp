// Wrong keys in sequence: each ends its queue pair, and after several the next connection from that
// host must wait.
#include <arpa/inet.h>
#include <doctest/doctest.h>

#include "forger.hpp"
#include "softhca/guesses.hpp"

using namespace zerohop::testing;
using softhca_clock = std::chrono::steady_clock;
using zerohop::UniqueFd;
using zerohop::softhca::Guesses;
namespace softhca = zerohop::softhca;

namespace {

in_addr host(const char* text) {
  in_addr address{};
  REQUIRE(::inet_pton(AF_INET, text, &address) == 1);
  return address;
}

const softhca_clock::time_point kBegin{std::chrono::hours(1)};

}  // namespace

TEST_CASE("sixty-four are free, then one is let in every quarter of a second") {
  Guesses guesses;
  const in_addr from = host("192.0.2.1");
  auto now = kBegin;
  for (int i = 0; i < Guesses::kFree; ++i) {
    guesses.add(from, now);
    CHECK_FALSE(guesses.wait(from, now));
  }
  for (int i = 0; i < 100; ++i) {
    guesses.add(from, now);
    CHECK(guesses.wait(from, now));
    now += Guesses::kEach;
    CHECK_FALSE(guesses.wait(from, now));
  }
}

TEST_CASE("nobody waits for longer than a queue pair does, and all is forgiven in time") {
  Guesses guesses;
  const in_addr from = host("192.0.2.1");
  for (int i = 0; i < 10'000; ++i) guesses.add(from, kBegin);
  CHECK(guesses.wait(from, kBegin + Guesses::kLongest - std::chrono::milliseconds(1)));
  CHECK_FALSE(guesses.wait(from, kBegin + Guesses::kLongest));
  const auto later = kBegin + Guesses::kLongest + Guesses::kFree * Guesses::kEach;
  for (int i = 0; i < Guesses::kFree; ++i) guesses.add(from, later);
  CHECK_FALSE(guesses.wait(from, later));
}

TEST_CASE("another host is not made to wait, and all loopback addresses are one") {
  Guesses guesses;
  for (int i = 0; i < 100; ++i) guesses.add(host("127.0.0.1"), kBegin);
  CHECK(guesses.wait(host("127.0.0.2"), kBegin));
  CHECK_FALSE(guesses.wait(host("192.0.2.1"), kBegin));
  guesses.forget();
  CHECK_FALSE(guesses.wait(host("127.0.0.2"), kBegin));
}

TEST_CASE("a guesser of keys is reconnected at once a few times, and then closed silently") {
  Stage stage;
  // Whether the connection is accepted; a wrong key then ends it.
  const auto guess = [&](std::uint32_t key) {
    REQUIRE(stage.side.try_state(IBV_QPS_RESET) == 0);
    stage.side.connect(stage.forger.address());
    const UniqueFd fd = dial(stage.side.address().gid);
    softhca::Hello hello = stage.forger.hello();
    say(fd, &hello, sizeof hello);
    if (::recv(fd.get(), &hello, sizeof hello, MSG_WAITALL) != sizeof hello) return false;
    Frame frame;
    wire::Packet packet = packet_of(wire::Op::write);
    packet.flags = wire::kInline;
    packet.key = key;
    packet.address = stage.side.at(0);
    packet.nbytes = 8;
    frame.add(packet);
    frame.rest.resize(frame.rest.size() + 8);
    frame.send(fd);
    REQUIRE(is_closed(fd));
    CHECK(stage.side.state() == IBV_QPS_ERR);
    return true;
  };
  constexpr int kMost = 2000;  // on a slow machine some expire meanwhile
  std::uint32_t key = stage.side.mr->rkey;
  int taken = 0;
  while (taken < kMost && guess(++key)) ++taken;
  CHECK(taken > Guesses::kFree);
  CHECK(taken < kMost);
  CHECK(stage.rejected() == 1);
}

TEST_CASE("a peer that made mistakes is reconnected, whoever dials, and continues") {
  Pair pair;
  const auto again = [&] {
    for (Side* side : {&pair.a, &pair.b}) REQUIRE(side->try_state(IBV_QPS_RESET) == 0);
    connect(pair.a, pair.b);
  };
  for (int i = 0; i < Guesses::kFree + 3; ++i) {
    REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, 8), pair.b.at(0),
                             pair.b.mr->rkey + 1) == 0);
    REQUIRE(pair.a.wait().status == IBV_WC_REM_ACCESS_ERR);
    again();
  }
  REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 2, pair.a.sge(0, 8), pair.b.at(0), pair.b.mr->rkey) ==
          0);
  CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
}
