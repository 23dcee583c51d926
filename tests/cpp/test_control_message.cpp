// Control messages: round trips, and damaged bytes that must only ever throw.
#include <doctest/doctest.h>

#include <optional>
#include <random>
#include <string>

#include "base/error.hpp"
#include "engine/channel/control_message.hpp"
#include "mutate.hpp"

namespace zerohop::engine {
namespace {

rdma::QueuePairAddress sample_queue_pair() {
  rdma::QueuePairAddress address;
  address.number = 0xabcdef;
  address.psn = 0x123456;
  for (std::uint8_t i = 0; i < 16; ++i) address.gid.raw[i] = static_cast<std::uint8_t>(i * 17);
  address.lid = 0xbeef;
  address.mtu = IBV_MTU_4096;
  address.reads_in = 16;
  address.reads_out = 8;
  return address;
}

std::vector<ControlMessage> one_of_each() {
  Hello hello;
  hello.id.fill(std::byte{0x5a});
  hello.proof.public_key.fill(std::byte{0x5b});
  hello.proof.signature.fill(std::byte{0x5c});
  hello.name = "rank 0";
  hello.host_name = "node-1";
  hello.pid = 4242;
  hello.queue_pairs = {rdma::QueuePairAddress{}, sample_queue_pair()};
  hello.global_atomics = 1;
  hello.receive_slots = 64;
  hello.slot_nbytes = 8192;
  hello.established = 3;
  hello.integrity = 1;
  return {hello,
          Ready{},
          Lookup{7, "kv"},
          Found{7, std::vector<std::byte>(100, std::byte{3})},
          NotFound{8},
          Heartbeat{~std::uint64_t{0}},
          Requeue{1, 2, sample_queue_pair()},
          Bye{"closed by its user", 1},
          OpenDirect{9, 3, sample_queue_pair()},
          DirectOpened{9, sample_queue_pair(), 0x7f0000001000, 77, "no"},
          CloseDirect{10},
          SumUp{11, {{std::vector<std::byte>(90, std::byte{4}), 5, 6}, {{}, 7, 8}}},
          SummedUp{11, {0xe3069283, 1}, 10, "no"}};
}

// The message, or nothing if the bytes were refused properly.
std::optional<ControlMessage> try_decode(std::span<const std::byte> bytes) {
  try {
    return decode_control_message(bytes);
  } catch (const ProtocolError& error) {
    CHECK(std::string(error.what()).starts_with("invalid control message: "));
    return std::nullopt;
  }
}

// Every field counts in the encoding (shown by the flips below), so equal bytes are equal messages.
bool same(const ControlMessage& one, const ControlMessage& two) {
  return encode(one) == encode(two);
}

TEST_CASE("the samples cover every kind") {
  const std::vector<ControlMessage> samples = one_of_each();
  REQUIRE(samples.size() == std::variant_size_v<ControlMessage>);
  for (std::size_t kind = 0; kind < samples.size(); ++kind) CHECK(samples[kind].index() == kind);
}

TEST_CASE("every message survives the round trip") {
  for (const ControlMessage& message : one_of_each()) {
    const ControlMessage decoded = decode_control_message(encode(message));
    CHECK(decoded.index() == message.index());
    CHECK(same(decoded, message));
  }
}

TEST_CASE("the fields of Hello arrive in their places") {
  const auto hello = std::get<Hello>(decode_control_message(encode(one_of_each()[0])));
  CHECK(hello.version == kControlVersion);
  CHECK(hello.id[15] == std::byte{0x5a});
  CHECK(hello.proof.public_key[31] == std::byte{0x5b});
  CHECK(hello.proof.signature[63] == std::byte{0x5c});
  CHECK(hello.name == "rank 0");
  CHECK(hello.host_name == "node-1");
  CHECK(hello.pid == 4242);
  CHECK(hello.queue_pairs.at(1).number == 0xabcdef);
  CHECK(hello.queue_pairs.at(1).psn == 0x123456);
  CHECK(hello.queue_pairs.at(1).gid.raw[15] == 255);
  CHECK(hello.queue_pairs.at(1).lid == 0xbeef);
  CHECK(hello.queue_pairs.at(1).mtu == IBV_MTU_4096);
  CHECK(hello.queue_pairs.at(1).reads_in == 16);
  CHECK(hello.queue_pairs.at(1).reads_out == 8);
  CHECK(hello.global_atomics == 1);
  CHECK(hello.receive_slots == 64);
  CHECK(hello.slot_nbytes == 8192);
  CHECK(hello.established == 3);
  CHECK(hello.integrity == 1);
}

TEST_CASE("no more rails are taken than there may be") {
  Hello hello;
  hello.queue_pairs.resize(kMaxRails);
  CHECK(same(decode_control_message(encode(hello)), hello));
  hello.queue_pairs.resize(kMaxRails + 1);
  CHECK_THROWS_AS(decode_control_message(encode(hello)), ProtocolError);
}

TEST_CASE("no more checksums are requested or sent than fit into a message") {
  SummedUp told{.request = 1, .sums = std::vector<std::uint32_t>(kMaxSums), .refusal = {}};
  CHECK(same(decode_control_message(encode(told)), told));
  told.sums.resize(kMaxSums + 1);
  CHECK_THROWS_AS(encode(told), ProtocolError);
  std::vector<std::byte> claim(11, std::byte{0xff});  // 65535 parts, and not a byte of them
  claim[0] = std::byte{11};
  CHECK_THROWS_AS(decode_control_message(claim), ProtocolError);
}

TEST_CASE("every truncation and every extension is a ProtocolError") {
  for (const ControlMessage& message : one_of_each()) {
    std::vector<std::byte> bytes = encode(message);
    testing::for_each_truncation(bytes, [](const std::vector<std::byte>& cut) {
      CHECK_THROWS_AS(decode_control_message(cut), ProtocolError);
    });
    bytes.push_back(std::byte{0});
    CHECK_THROWS_AS(decode_control_message(bytes), ProtocolError);
  }
}

TEST_CASE("a flipped bit gives another valid message or a ProtocolError") {
  for (const ControlMessage& message : one_of_each()) {
    testing::for_each_bit_flip(encode(message), [&](const std::vector<std::byte>& flipped) {
      const auto decoded = try_decode(flipped);
      if (!decoded) return;
      CHECK_FALSE(same(*decoded, message));
      CHECK(same(decode_control_message(encode(*decoded)), *decoded));
    });
  }
}

TEST_CASE("text is fit to be shown, whatever its sender has made of it") {
  const std::string raw = "\xff\n\x1b\u202e";
  const std::string shown = "\\xff\\x0a\\x1b\\xe2\\x80\\xae";
  Hello hello;
  hello.name = hello.host_name = raw;
  const auto heard = std::get<Hello>(decode_control_message(encode(hello)));
  CHECK(heard.name == shown);
  CHECK(heard.host_name == shown);
  CHECK(std::get<Bye>(decode_control_message(encode(Bye{raw}))).reason == shown);
  CHECK(std::get<DirectOpened>(
            decode_control_message(encode(DirectOpened{.queue_pair = {}, .refusal = raw})))
            .refusal == shown);
  CHECK(std::get<SummedUp>(decode_control_message(encode(SummedUp{.sums = {}, .refusal = raw})))
            .refusal == shown);
  // Keys are looked up, not displayed.
  CHECK(std::get<Lookup>(decode_control_message(encode(Lookup{1, raw}))).name == raw);
}

TEST_CASE("text that grows by that still fits into a message") {
  const std::string raw(kMaxNameBytes, '\xff');
  const auto heard = std::get<Bye>(decode_control_message(encode(Bye{raw})));
  CHECK(heard.reason.size() == kMaxNameBytes);
  CHECK(same(decode_control_message(encode(heard)), heard));
}

TEST_CASE("random bytes never do more than throw ProtocolError") {
  std::mt19937 random(20261121);
  std::size_t accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes(random() % 64);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (!bytes.empty()) bytes[0] &= std::byte{0x0f};
    if (const auto decoded = try_decode(bytes)) {
      CHECK(same(decode_control_message(encode(*decoded)), *decoded));
      ++accepted;
    }
  }
  CHECK(accepted > 0);  // a Heartbeat, for example, is nine bytes, of which eight are free
}

TEST_CASE("an unknown kind is named") {
  CHECK_THROWS_WITH_AS(decode_control_message(std::array{std::byte{200}}),
                       "invalid control message: unknown kind 200; both sides must run the same "
                       "version of zerohop",
                       ProtocolError);
  CHECK_THROWS_AS(decode_control_message({}), ProtocolError);
}

TEST_CASE("lengths are bounded on both sides") {
  CHECK_THROWS_AS(encode(Lookup{1, std::string(kMaxNameBytes + 1, 'x')}), ProtocolError);
  CHECK_THROWS_AS(encode(Found{1, std::vector<std::byte>(kMaxRemoteMemoryBytes + 1)}),
                  ProtocolError);
  CHECK_NOTHROW(decode_control_message(encode(Lookup{1, std::string(kMaxNameBytes, 'x')})));

  std::vector<std::byte> claims = encode(Lookup{1, "x"});
  claims[9] = std::byte{0xff};  // the length of the name
  claims[11] = std::byte{0xff};
  CHECK_THROWS_AS(decode_control_message(claims), ProtocolError);
}

}  // namespace
}  // namespace zerohop::engine
