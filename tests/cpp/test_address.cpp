// The address value: what a user passes on must arrive intact or be refused with the cause.
#include <doctest/doctest.h>

#include <string>

#include "base/error.hpp"
#include "engine/channel/address.hpp"
#include "engine/channel/endpoint_key.hpp"
#include "mutate.hpp"

namespace zerohop::engine {
namespace {

Address sample() {
  Address address = EndpointKey().address();
  address.host = "fe80::1%eth0";
  address.port = 65535;
  address.device = "soft0@eth0";
  address.name = "rank 3";
  return address;
}

std::string refusal(std::span<const std::byte> bytes) {
  try {
    (void)Address::from_bytes(bytes);
  } catch (const ProtocolError& error) {
    return error.what();
  }
  return "accepted";
}

TEST_CASE("an address survives the round trip") {
  const Address address = sample();
  CHECK(Address::from_bytes(address.to_bytes()) == address);
  CHECK(Address::from_bytes(Address{}.to_bytes()) == Address{});
}

TEST_CASE("text in an address is fit to be shown") {
  Address address = sample();
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
  const std::vector<std::byte> bytes = sample().to_bytes();
  const auto refused = [](const std::vector<std::byte>& damaged) {
    CHECK_THROWS_AS((void)Address::from_bytes(damaged), ProtocolError);
  };
  testing::for_each_truncation(bytes, refused);
  testing::for_each_bit_flip(bytes, refused);
}

TEST_CASE("a refusal names its cause") {
  std::vector<std::byte> bytes = sample().to_bytes();
  CHECK(refusal({}).find("too few") != std::string::npos);
  CHECK(refusal(std::span(bytes).first(40)).find("cut") != std::string::npos);

  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  CHECK(refusal(longer).find("extended") != std::string::npos);

  std::vector<std::byte> changed = bytes;
  changed[30] ^= std::byte{1};
  CHECK(refusal(changed).find("changed") != std::string::npos);

  std::vector<std::byte> newer = bytes;
  newer[4] = std::byte{9};
  CHECK(refusal(newer).find("version 9") != std::string::npos);

  CHECK(refusal(std::as_bytes(std::span("http://10.0.0.5:80/"))).find("not an Endpoint.address") !=
        std::string::npos);
}

TEST_CASE("names beyond the limit are refused where they are made") {
  Address address = sample();
  address.name.assign(5000, 'x');
  CHECK_THROWS_AS((void)address.to_bytes(), ProtocolError);
}

TEST_CASE("hex shows every byte as two digits") {
  CHECK(to_hex(std::array{std::byte{0x00}, std::byte{0x0f}, std::byte{0xa5}}) == "000fa5");
}

}  // namespace
}  // namespace zerohop::engine
