// Connections to soft0 by hand: nobody without all credentials gets in, no flood keeps the real
// peer out, guesses of keys must wait, and a message is of one operation.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <vector>

#include "forger.hpp"
#include "process.hpp"
#include "softhca/guesses.hpp"

namespace zerohop::testing {
namespace {

using wire::Op;
using zerohop::softhca::Guesses;

// --- pending connections ---

TEST_CASE("a forged hello fails unless every field is right") {
  Stage stage;
  const auto tampered = [&](auto change) {
    softhca::Hello hello = stage.forger.hello();
    change(hello);
    UniqueFd fd = dial(stage.side.address().gid);
    say(fd, &hello, sizeof hello);
    return is_closed(fd);
  };
  CHECK(tampered([](softhca::Hello& hello) { hello.magic[7] ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.source.raw[5] ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.destination.raw[9] ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.source_qp ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.destination_qp ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.source_psn ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.destination_psn ^= 1; }));
  CHECK(tampered([](softhca::Hello& hello) { hello.zero = 1; }));
  CHECK(stage.rejected() == 8);
  UniqueFd good = stage.enter();
  CHECK(stage.side.state() == IBV_QPS_RTS);
  // The place is taken now, even for a connection with all credentials.
  CHECK(tampered([](softhca::Hello&) {}));
}

TEST_CASE("a stranger that sends nothing, little or too much is closed") {
  Stage stage;
  UniqueFd silent = dial(stage.side.address().gid);
  UniqueFd slow = dial(stage.side.address().gid);
  const softhca::Hello hello = stage.forger.hello();
  say(slow, &hello, 20);
  UniqueFd gone = dial(stage.side.address().gid);
  say(gone, &hello, 63);
  gone.reset();
  UniqueFd garbage = dial(stage.side.address().gid);
  std::vector<std::byte> noise(100000, std::byte{0x55});
  say(garbage, noise.data(), noise.size());
  CHECK(is_closed(garbage));
  CHECK(is_closed(silent));
  CHECK(is_closed(slow));
  CHECK(eventually([&] { return stage.rejected() == 4; }));
  stage.enter();
}

TEST_CASE("hellos that come in pieces, and before their queue pair is ready, are accepted") {
  Side side;
  Forger forger(side.address());
  REQUIRE(side.try_init() == 0);
  UniqueFd fd = dial(side.address().gid);
  const softhca::Hello hello = forger.hello();
  for (std::size_t i = 0; i < sizeof hello; ++i) {
    say(fd, reinterpret_cast<const std::byte*>(&hello) + i, 1);
  }
  REQUIRE(side.try_ready_to_receive(forger.address()) == 0);
  REQUIRE(side.try_ready_to_send() == 0);
  softhca::Hello welcome{};
  CHECK(::recv(fd.get(), &welcome, sizeof welcome, MSG_WAITALL) == sizeof welcome);
}

TEST_CASE("a thousand strangers do not keep the real peer out") {
  Stage stage;
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 500; ++i) crowd.push_back(dial(stage.side.address().gid));
  stage.enter();
}

bool is_open(const UniqueFd& fd) {
  pollfd watched{fd.get(), POLLIN, 0};
  return ::poll(&watched, 1, 0) == 0;
}

TEST_CASE("of too many strangers a random one is evicted, and one that greets is admitted") {
  Stage stage;
  const Lowered files(RLIMIT_NOFILE, 800);  // unauthenticated connections get a quarter
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 220; ++i) crowd.push_back(dial(stage.side.address().gid));
  CHECK(eventually([&] { return stage.rejected() == 20; }));
  // Not the oldest, as an attacker could want who aims at the place of one of them.
  CHECK(std::ranges::count_if(crowd, is_open) == 200);
  CHECK_FALSE(std::ranges::all_of(crowd.begin() + 20, crowd.end(), is_open));
  stage.enter();
}

// --- wrong keys in sequence: each ends its queue pair, and after several the next must wait ---

in_addr host(const char* text) {
  in_addr address{};
  REQUIRE(::inet_pton(AF_INET, text, &address) == 1);
  return address;
}

const Clock::time_point kBegin{std::chrono::hours(1)};

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
  pair.a.rdma(IBV_WR_RDMA_WRITE, 2, pair.a.sge(0, 8), pair.b);
  CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
}

// --- the packets of a message: no more bytes than allowed ---

constexpr std::uint8_t kMore = wire::kMore;

// With 8 bytes of payload, or with operands.
void add(Frame& frame, const Stage& stage, Op op, std::uint8_t flags = 0) {
  wire::Packet packet = packet_of(op);
  packet.key = stage.side.mr->rkey;
  packet.address = stage.side.at(0);
  const bool atomic = op == Op::fetch_add;
  const bool query = atomic || op == Op::read;
  if (!atomic) packet.nbytes = 8;
  packet.flags = query ? flags : static_cast<std::uint8_t>(flags | wire::kInline);
  frame.add(packet);
  if (!query) frame.add("12345678", 8);
  if (atomic) frame.add("0123456789abcde", sizeof(wire::Operands));
}

// The responder's answer then.
void is_refused(const Stage& stage, const UniqueFd& fd, Frame& frame) {
  frame.send(fd);
  struct {
    wire::Prefix prefix;
    wire::Packet packet;
  } answer{};
  REQUIRE(::recv(fd.get(), &answer, sizeof answer, MSG_WAITALL) == sizeof answer);
  CHECK(answer.packet.op == Op::refused);
  CHECK(answer.packet.detail == static_cast<std::uint16_t>(wire::Refusal::invalid_request));
  CHECK(answer.packet.sequence == 0);
  CHECK(eventually([&] { return stage.side.state() == IBV_QPS_ERR; }));
}

void is_refused(Op first, Op second, std::uint8_t flags = 0) {
  Stage stage;
  stage.side.receive(7, 0, 64);
  const UniqueFd fd = stage.enter();
  Frame frame;
  add(frame, stage, first, kMore);
  add(frame, stage, second, flags);
  is_refused(stage, fd, frame);
  const ibv_wc flushed = stage.side.wait();
  CHECK(flushed.wr_id == 7);
  CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("a message of several operations is an invalid request") {
  is_refused(Op::write, Op::send);  // the receive would have reported 16 bytes, and got 8
  is_refused(Op::send, Op::write, wire::kImmediate);
  is_refused(Op::send, Op::write);
  is_refused(Op::write, Op::read);
  is_refused(Op::send, Op::fetch_add);
}

TEST_CASE("an empty first packet counts, too") {
  Stage stage;
  stage.side.receive(7, 0, 64);
  const UniqueFd fd = stage.enter();
  Frame frame;
  wire::Packet empty = packet_of(Op::write);
  empty.flags = kMore;
  frame.add(empty);
  add(frame, stage, Op::send);
  is_refused(stage, fd, frame);
}

TEST_CASE("messages of one operation each follow each other in a frame") {
  Stage stage;
  stage.side.receive(7, 100, 64);
  const UniqueFd fd = stage.enter();
  Frame frame;
  for (const Op op : {Op::write, Op::send}) {
    add(frame, stage, op, kMore);
    add(frame, stage, op);
  }
  frame.send(fd);
  const ibv_wc received = stage.side.wait();
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.wr_id == 7);
  CHECK(received.byte_len == 16);
}

TEST_CASE("a message has no more bytes than the port allows") {
  Stage stage({.nbytes = wire::kSegmentBytes});
  const UniqueFd fd = stage.enter();
  const std::vector<std::byte> payload(wire::kSegmentBytes);
  std::uint64_t nbytes = 0;
  while (nbytes < wire::kMaxMessage) {
    Frame frame;
    wire::Packet packet = packet_of(Op::write);
    packet.flags = kMore;
    packet.nbytes = wire::kSegmentBytes;
    packet.key = stage.side.mr->rkey;
    packet.address = stage.side.at(0);
    frame.add(packet);
    frame.send(fd);
    say(fd, payload.data(), payload.size());
    nbytes += payload.size();
  }
  CHECK(stage.side.state() == IBV_QPS_RTS);
  Frame frame;
  add(frame, stage, Op::write);
  is_refused(stage, fd, frame);
}

}  // namespace
}  // namespace zerohop::testing
