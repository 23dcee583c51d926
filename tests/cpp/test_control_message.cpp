// What processes send each other: values arrive intact, and damaged bytes only ever throw.
#include <doctest/doctest.h>

#include <optional>
#include <random>
#include <string>

#include "base/error.hpp"
#include "base/wire_text.hpp"
#include "engine/channel/address.hpp"
#include "engine/channel/control_message.hpp"
#include "engine/channel/endpoint_key.hpp"
#include "engine/memory/remote_memory.hpp"
#include "mutate.hpp"
#include "reported.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;

// --- control messages ---

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

TEST_CASE("no more rails are taken than there may be") {
  Hello hello;
  hello.queue_pairs.resize(kMaxRails);
  CHECK(same(decode_control_message(encode(hello)), hello));
  hello.queue_pairs.resize(kMaxRails + 1);
  CHECK_THROWS_AS(decode_control_message(encode(hello)), ProtocolError);
}

TEST_CASE("no more checksums are requested or sent than fit into a message") {
  SummedUp reported{.request = 1, .sums = std::vector<std::uint32_t>(kMaxSums), .refusal = {}};
  CHECK(same(decode_control_message(encode(reported)), reported));
  reported.sums.resize(kMaxSums + 1);
  CHECK_THROWS_AS(encode(reported), ProtocolError);
  std::vector<std::byte> claim(11, std::byte{0xff});  // 65535 parts, and not a byte of them
  claim[0] = std::byte{11};
  CHECK_THROWS_AS(decode_control_message(claim), ProtocolError);
}

TEST_CASE("every truncation and every extension is a ProtocolError") {
  for (const ControlMessage& message : one_of_each()) {
    std::vector<std::byte> bytes = encode(message);
    for_each_truncation(bytes, [](const std::vector<std::byte>& cut) {
      CHECK_THROWS_AS(decode_control_message(cut), ProtocolError);
    });
    bytes.push_back(std::byte{0});
    CHECK_THROWS_AS(decode_control_message(bytes), ProtocolError);
  }
}

TEST_CASE("a flipped bit gives another valid message or a ProtocolError") {
  for (const ControlMessage& message : one_of_each()) {
    for_each_bit_flip(encode(message), [&](const std::vector<std::byte>& flipped) {
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

// --- addresses ---

Address sample_address() {
  Address address = EndpointKey().address();
  address.host = "fe80::1%eth0";
  address.port = 65535;
  address.device = "soft0@eth0";
  address.name = "rank 3";
  return address;
}

std::string refusal(std::span<const std::byte> bytes) {
  return message_of<ProtocolError>([&] { (void)Address::from_bytes(bytes); });
}

TEST_CASE("an address survives the round trip") {
  const Address address = sample_address();
  CHECK(Address::from_bytes(address.to_bytes()) == address);
  CHECK(Address::from_bytes(Address{}.to_bytes()) == Address{});
}

TEST_CASE("text in an address is fit to be shown") {
  Address address = sample_address();
  address.name = "\xff\xfe\n";
  address.host = address.device = "\x1b[2J";
  const Address read = Address::from_bytes(address.to_bytes());
  CHECK(read.name == "\\xff\\xfe\\x0a");
  CHECK(read.host == "\\x1b[2J");
  CHECK(read.device == "\\x1b[2J");
}

TEST_CASE("random keys differ") {
  const Address one = EndpointKey().address();
  const Address two = EndpointKey().address();
  CHECK(one.id != two.id);
  CHECK(one.secret != two.secret);
}

TEST_CASE("every truncation and every flipped bit is a ProtocolError") {
  const std::vector<std::byte> bytes = sample_address().to_bytes();
  const auto refused = [](const std::vector<std::byte>& damaged) {
    CHECK_THROWS_AS((void)Address::from_bytes(damaged), ProtocolError);
  };
  for_each_truncation(bytes, refused);
  for_each_bit_flip(bytes, refused);
}

TEST_CASE("a refusal names its cause") {
  std::vector<std::byte> bytes = sample_address().to_bytes();
  CHECK(refusal({}).find("too few") != std::string::npos);
  CHECK(refusal(std::span(bytes).first(40)).find("cut") != std::string::npos);

  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  CHECK(contains(refusal(longer), "extended"));

  std::vector<std::byte> changed = bytes;
  changed[30] ^= std::byte{1};
  CHECK(contains(refusal(changed), "changed"));

  std::vector<std::byte> newer = bytes;
  newer[4] = std::byte{9};
  CHECK(contains(refusal(newer), "version 9"));

  CHECK(refusal(std::as_bytes(std::span("http://10.0.0.5:80/"))).find("not an Endpoint.address") !=
        std::string::npos);
}

TEST_CASE("names beyond the limit are refused where they are made") {
  Address address = sample_address();
  address.name.assign(5000, 'x');
  CHECK_THROWS_AS((void)address.to_bytes(), ProtocolError);
}

// --- RemoteMemory ---

RemoteMemory sample_memory() {
  RemoteMemory memory;
  memory.endpoint.fill(std::byte{0x5a});
  memory.layout = {1u << 20, DType::parse("float32"), {4, 8}, {64, 4}};
  memory.rkeys = {0xfeedface, 0, 0x1234};
  memory.access = kRemoteRead | kRemoteWrite;
  memory.begin = 1u << 20;
  memory.end = memory.begin + 4096;
  memory.device = "cpu";
  return memory;
}

TEST_CASE("an array that leaves its registered range is refused") {
  RemoteMemory memory = sample_memory();
  memory.end = memory.begin + 64;
  CHECK_THROWS_AS(RemoteMemory::from_bytes(memory.to_bytes()), ProtocolError);
}

TEST_CASE("a RemoteMemory of more rails than there may be is refused") {
  auto bytes = sample_memory().to_bytes();
  constexpr std::size_t kCountAt = 4 + 16;  // after magic and endpoint
  REQUIRE(bytes[kCountAt] == std::byte{3});
  bytes[kCountAt] = std::byte{kMaxRails + 1};
  bytes.resize(bytes.size() + 64);
  CHECK_THROWS_AS(RemoteMemory::from_bytes(bytes), ProtocolError);
}

// --- text: displayed as UTF-8 in one line, in one direction ---

constexpr std::size_t kMost = 4096;
std::string shown(std::string_view bytes) { return wire_text(bytes, kMost); }

TEST_CASE("text in any language stays as it is") {
  for (const std::string text :
       {"", "rank 0 of 'job' (node-1:42)", "caf\u00e9 \u00df\u00ad", "\u0440\u0430\u043d\u0433 0",
        "\u30e9\u30f3\u30af", "\u05d0\u05d1", "\U0001f680", "\ue000\ufffd\U0010ffff", "a\\b"}) {
    CHECK(shown(text) == text);
  }
}

TEST_CASE("invalid UTF-8 is shown byte by byte") {
  CHECK(shown("\xff\xfe") == "\\xff\\xfe");
  CHECK(shown("a\x80z") == "a\\x80z");
  CHECK(shown("\xc3") == "\\xc3");                             // cut off
  CHECK(shown("\xe2\x82") == "\\xe2\\x82");                    // likewise
  CHECK(shown("\xe2(\xa1") == "\\xe2(\\xa1");                  // no continuation
  CHECK(shown("\xc0\xaf") == "\\xc0\\xaf");                    // overlong
  CHECK(shown("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");           // likewise
  CHECK(shown("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  CHECK(shown("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond the last
  CHECK(shown("\xf5\x80\x80\x80") == "\\xf5\\x80\\x80\\x80");
}

TEST_CASE("what drives terminals, breaks lines or turns the direction of writing is shown") {
  CHECK(shown("a\nb\r\tc") == "a\\x0ab\\x0d\\x09c");
  CHECK(shown(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(shown("\x1b[2J\x7f") == "\\x1b[2J\\x7f");
  CHECK(shown("\u009b2J\u0085") == "\\xc2\\x9b2J\\xc2\\x85");
  CHECK(shown("\u2028\u2029") == "\\xe2\\x80\\xa8\\xe2\\x80\\xa9");
  CHECK(shown("txt.\u202eexe") == "txt.\\xe2\\x80\\xaeexe");
  for (const char* turn : {"\u061c", "\u200e", "\u200f", "\u202a", "\u2066", "\u2069"}) {
    CHECK(shown(turn).starts_with("\\x"));
  }
}

TEST_CASE("it is cut between two characters or escapes") {
  CHECK(wire_text("abc", 2) == "ab");
  CHECK(wire_text("a\u00e9", 2) == "a");
  CHECK(wire_text("a\xff\xff", 8) == "a\\xff");
  CHECK(wire_text(std::string(5000, '\xff'), kMost).size() == kMost);
}

TEST_CASE("whatever comes, it is the same the second time") {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(random() % 12, '\0');
    for (char& each : bytes) {
      each = static_cast<char>(random() % 4 == 0 ? 0x80 + random() % 0x80 : random());
    }
    const std::string once = shown(bytes);
    CHECK(shown(once) == once);
  }
}

}  // namespace
}  // namespace zerohop::testing
