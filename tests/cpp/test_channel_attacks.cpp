// The channel against a man in the middle and unauthenticated peers: no altered message is ever
// delivered, and every attempt ends in a typed failure.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/random.hpp"
#include "engine/channel/cipher.hpp"
#include "engine/channel/established.hpp"
#include "reported.hpp"
#include "wiretap.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;
using namespace std::chrono_literals;
using engine::Secret;
using Kind = ChannelFailure::Kind;
using State = Channel::State;

constexpr std::size_t kPrologue = sizeof(engine::Prologue);

constexpr std::size_t kHandshake =
    kPrologue + engine::kHeaderBytes + engine::kLengthBytes + engine::kFrameOverhead;

Secret fresh_secret() {
  Secret secret;
  fill_random(secret);
  return secret;
}

const std::vector<Bytes> kMessages = messages({"first", "", "the last one"});

// Both sides send all of kMessages as soon as they can.
void talk(Wiretap& wire) {
  for (const Bytes& message : kMessages) {
    wire[kInitiator].send(message);
    wire[kAcceptor].send(message);
  }
  wire.run();
}

bool is_proper_prefix(const std::vector<Bytes>& received) {
  return received.size() < kMessages.size() &&
         std::equal(received.begin(), received.end(), kMessages.begin());
}

Wiretap::Edit flip_bit(Side victim, std::size_t bit) {
  return [=](Side from, std::size_t at, Bytes bytes) {
    if (from == victim && bit / 8 >= at && bit / 8 < at + bytes.size()) {
      bytes[bit / 8 - at] ^= std::byte{static_cast<unsigned char>(1u << (bit % 8))};
    }
    return bytes;
  };
}

std::size_t conversation_nbytes() {
  Wiretap wire;
  talk(wire);
  REQUIRE(wire.received(kInitiator) == kMessages);
  REQUIRE(wire.received(kAcceptor) == kMessages);
  REQUIRE(wire.sent(kInitiator).size() == wire.sent(kAcceptor).size());
  return wire.sent(kInitiator).size();
}

TEST_CASE("no flipped bit goes unnoticed") {
  const std::size_t nbits = conversation_nbytes() * 8;
  REQUIRE(nbits > kHandshake * 8);
  for (const Side from : {kInitiator, kAcceptor}) {
    const Side to = from == kInitiator ? kAcceptor : kInitiator;
    for (std::size_t bit = 0; bit < nbits; ++bit) {
      Wiretap wire;
      wire.edit(flip_bit(from, bit));
      talk(wire);
      // An increased length makes the receiver wait, until the end, for bytes that never come.
      wire.hang_up(to);
      wire.run();
      CAPTURE(bit);
      CHECK(is_proper_prefix(wire.received(to)));
      CHECK(wire[to].state() == State::closed);
      CHECK_FALSE(wire.cause(to).empty());
    }
  }
}

TEST_CASE("every truncation ends in a failure, with no message made up") {
  const std::size_t nbytes = conversation_nbytes();
  for (const Side from : {kInitiator, kAcceptor}) {
    const Side to = from == kInitiator ? kAcceptor : kInitiator;
    for (std::size_t end = 0; end < nbytes; ++end) {
      Wiretap wire;
      wire.edit([&](Side side, std::size_t at, Bytes bytes) {
        if (side == from) bytes.resize(std::min(bytes.size(), end - std::min(end, at)));
        return bytes;
      });
      talk(wire);
      wire.hang_up(to);
      wire.run();
      CAPTURE(end);
      CHECK(is_proper_prefix(wire.received(to)));
      CHECK(wire[to].state() == State::closed);
      CHECK(wire.kind(to) == Kind::lost);
    }
  }
}

TEST_CASE("a wrong secret is an AuthenticationError and nothing is delivered") {
  Wiretap wire(fresh_secret(), fresh_secret());
  talk(wire);
  for (const Side side : {kInitiator, kAcceptor}) {
    CHECK(wire.received(side).empty());
    CHECK(wire[side].state() == State::closed);
    CHECK(wire.kind(side) == Kind::authentication);
    CHECK(wire.sent(side).size() == kHandshake);  // none of the messages left
    CHECK_THROWS_AS(wire[side].send(to_bytes("more")), AuthenticationError);
  }
}

TEST_CASE("another protocol version is a ProtocolError that names both") {
  Wiretap wire;
  wire.edit([](Side, std::size_t at, Bytes bytes) {
    if (at == 0) bytes[7] = std::byte{9};
    return bytes;
  });
  talk(wire);
  for (const Side side : {kInitiator, kAcceptor}) {
    CHECK(wire.kind(side) == Kind::protocol);
    CHECK(contains(wire.cause(side), "version 9"));
    CHECK(contains(wire.cause(side), "version 1"));
    CHECK(wire.received(side).empty());
  }
}

TEST_CASE("an initiator of another version learns the acceptor's") {
  Wiretap wire;
  wire.edit([](Side from, std::size_t at, Bytes bytes) {
    if (from == kInitiator && at == 0) bytes[7] = std::byte{9};
    return bytes;
  });
  talk(wire);
  CHECK(wire.kind(kAcceptor) == Kind::protocol);
  REQUIRE(wire.sent(kAcceptor).size() == kPrologue);
  CHECK(wire.sent(kAcceptor)[7] == std::byte{1});
}

TEST_CASE("a connection replayed to the acceptor is not believed") {
  const Secret secret = fresh_secret();
  Wiretap original(secret, secret);
  talk(original);
  REQUIRE(original.received(kAcceptor) == kMessages);

  Wiretap replay(secret, secret);
  replay.edit([&](Side from, std::size_t at, Bytes bytes) {
    if (from == kInitiator) return at == 0 ? original.sent(kInitiator) : Bytes{};
    return bytes;
  });
  talk(replay);
  CHECK(replay.received(kAcceptor).empty());
  CHECK(replay.kind(kAcceptor) == Kind::authentication);
}

TEST_CASE("a side does not take its own bytes for the peer's") {
  auto [fd, tap] = socket_pair();
  const auto channel = Channel::initiate(std::move(fd), fresh_secret());
  int delivered = 0;
  for (Bytes bytes = take_bytes(tap.get()); !bytes.empty(); bytes = take_bytes(tap.get())) {
    put_bytes(tap.get(), bytes);
    channel->progress([&](auto) { ++delivered; });
  }
  CHECK(delivered == 0);
  REQUIRE(channel->failure());
  CHECK(channel->failure()->kind == Kind::authentication);
}

// Edits frames of an open channel: holds the first, acts on it when the second comes.
TEST_CASE("repeated, swapped and dropped frames are a ProtocolError") {
  const auto run_with = [](const std::function<Bytes(Bytes, Bytes)>& combine) {
    Wiretap wire;
    wire.run();
    REQUIRE(wire[kAcceptor].state() == State::open);
    Bytes held;
    wire.edit([&](Side, std::size_t, Bytes bytes) {
      if (!held.empty()) return combine(held, bytes);
      held = bytes;
      return Bytes{};
    });
    wire[kInitiator].send(to_bytes("one"));
    wire.run();
    wire[kInitiator].send(to_bytes("two"));
    wire.run();
    CHECK(wire.kind(kAcceptor) == Kind::protocol);
    return wire.received(kAcceptor).size();
  };
  const auto join = [](Bytes one, const Bytes& two) {
    one.insert(one.end(), two.begin(), two.end());
    return one;
  };
  CHECK(run_with([&](Bytes one, Bytes) { return join(one, one); }) == 1);
  CHECK(run_with([&](Bytes one, Bytes two) { return join(two, one); }) == 0);
  CHECK(run_with([&](Bytes, Bytes two) { return two; }) == 0);
}

TEST_CASE("a frame beyond the limit is a ProtocolError at its length") {
  Wiretap wire;
  wire.run();
  const std::size_t beyond = Channel::kMaxMessage + engine::kFrameOverhead + 1;
  Bytes length;
  for (int i = 0; i < 4; ++i) length.push_back(static_cast<std::byte>(beyond >> (8 * i)));
  put_bytes(wire.tap(kAcceptor), length);
  wire.run();
  CHECK(wire.kind(kAcceptor) == Kind::protocol);
  CHECK(contains(wire.cause(kAcceptor), std::to_string(beyond)));
}

TEST_CASE("a stranger is refused at the first bytes and gets no answer") {
  auto [fd, stranger] = socket_pair();
  const auto channel = Channel::accept(std::move(fd), fresh_secret());
  put_bytes(stranger.get(), to_bytes("GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n"));
  CHECK_FALSE(channel->progress([](auto) { FAIL("delivered"); }));
  CHECK(channel->failure()->kind == Kind::protocol);
  CHECK(take_bytes(stranger.get()).empty());
}

TEST_CASE("a public key of low order is refused") {
  auto [fd, stranger] = socket_pair();
  const auto channel = Channel::accept(std::move(fd), fresh_secret());
  Bytes prologue = to_bytes("zerohop\1");
  prologue.resize(kPrologue);  // the point 0
  put_bytes(stranger.get(), prologue);
  CHECK_FALSE(channel->progress([](auto) { FAIL("delivered"); }));
  CHECK(channel->failure()->kind == Kind::authentication);
}

TEST_CASE("random bytes after a correct beginning are refused") {
  for (int round = 0; round < 200; ++round) {
    auto [fd, stranger] = socket_pair();
    const auto channel = Channel::accept(std::move(fd), fresh_secret());
    Bytes bytes = to_bytes("zerohop\1");
    bytes.resize(4096);
    fill_random(std::span(bytes).subspan(8));
    put_bytes(stranger.get(), bytes);
    CHECK_FALSE(channel->progress([](auto) { FAIL("delivered"); }));
    CHECK(channel->failure()->kind == Kind::authentication);
  }
}

TEST_CASE("a silent peer leaves the channel handshaking") {
  auto [fd, stranger] = socket_pair();
  const auto channel = Channel::accept(std::move(fd), fresh_secret());
  CHECK(channel->progress([](auto) { FAIL("delivered"); }));
  CHECK(channel->state() == State::handshaking);
}

// --- connections are counted by peer, and peers that left long ago are forgotten ---

EndpointId id_of(std::uint32_t number) {
  EndpointId id{};
  std::memcpy(id.data(), &number, sizeof number);
  return id;
}

TEST_CASE("connections are counted by peer") {
  Established established;
  const auto never = [](const EndpointId&) { return false; };
  CHECK(established.count(id_of(1)) == 0);
  for (int i = 0; i < 3; ++i) established.add(id_of(1), never);
  established.add(id_of(2), never);
  CHECK(established.count(id_of(1)) == 3);
  CHECK(established.count(id_of(2)) == 1);
  CHECK(established.count(id_of(3)) == 0);
  CHECK(established.size() == 2);
}

TEST_CASE("of changing peers those stay that are connected, or were a moment ago") {
  Established established;
  const auto is_first = [](const EndpointId& id) { return id == id_of(0); };
  auto now = Established::Clock::now();
  for (std::uint32_t number = 0; number < 100'000; ++number) {
    established.add(id_of(number), is_first, now);
    now += 1s;
    CHECK(established.count(id_of(number)) == 1);
  }
  CHECK(established.size() <= 512);
  CHECK(established.count(id_of(0)) == 1);
  CHECK(established.count(id_of(99'950)) == 1);
  CHECK(established.count(id_of(50'000)) == 0);
}

}  // namespace
}  // namespace zerohop::testing
