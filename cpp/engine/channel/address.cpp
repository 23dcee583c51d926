#include "engine/channel/address.hpp"

#include <sodium.h>

#include <algorithm>

#include "base/wire.hpp"
#include "engine/channel/cipher.hpp"

namespace zerohop::engine {
namespace {

// Layout: magic, version, total length, fields, checksum. The length distinguishes truncation from
// damage.
constexpr std::array kAddressMagic = {std::byte{'z'}, std::byte{'h'}, std::byte{'a'},
                                      std::byte{'d'}};
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kMaxHost = 255;
constexpr std::size_t kMaxName = 4096;

using Checksum = std::array<std::byte, 16>;  // 16 is the shortest BLAKE2b output of libsodium
static_assert(std::tuple_size_v<Checksum> >= crypto_generichash_BYTES_MIN);

Checksum checksum(std::span<const std::byte> bytes) {
  prepare_sodium();
  Checksum sum;
  crypto_generichash(reinterpret_cast<unsigned char*>(sum.data()), sum.size(),
                     reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr,
                     0);
  return sum;
}

std::vector<std::byte> encode_fields(const Address& address) {
  WireWriter writer;
  writer.fixed(address.id);
  writer.fixed(address.secret);
  writer.text(address.host, kMaxHost);
  writer.number(address.port);
  writer.text(address.device, kMaxName);
  writer.text(address.name, kMaxName);
  return writer.take();
}

Address decode_fields(WireReader& reader) {
  Address address;
  reader.fixed(address.id);
  reader.fixed(address.secret);
  address.host = reader.text(kMaxHost);
  address.port = reader.number<std::uint16_t>();
  address.device = reader.text(kMaxName);
  address.name = reader.text(kMaxName);
  reader.finish();
  return address;
}

[[noreturn]] void refuse_address(const std::string& cause) {
  throw ProtocolError("invalid address: " + cause);
}

constexpr std::size_t kPreamble = kAddressMagic.size() + sizeof(kVersion) + sizeof(std::uint16_t);

// Checks everything around the fields; returns the fields.
std::span<const std::byte> check_envelope(std::span<const std::byte> bytes) {
  WireReader reader(bytes, "address");
  if (bytes.size() < kPreamble) {
    refuse_address(std::to_string(bytes.size()) +
                   " bytes are too few; pass on all of Endpoint.address");
  }
  std::array<std::byte, kAddressMagic.size()> magic;
  reader.fixed(magic);
  if (magic != kAddressMagic) refuse_address("these bytes are not an Endpoint.address");
  if (const auto version = reader.number<std::uint8_t>(); version != kVersion) {
    refuse_address("it has version " + std::to_string(version) + ", this side knows version " +
                   std::to_string(kVersion) +
                   "; install the same version of zerohop on both sides");
  }
  const std::size_t expected = reader.number<std::uint16_t>();
  if (bytes.size() != expected || expected < kPreamble + sizeof(Checksum)) {
    refuse_address(std::to_string(bytes.size()) + " bytes where " + std::to_string(expected) +
                   " belong; it was cut or extended on the way");
  }
  const std::size_t summed = bytes.size() - sizeof(Checksum);
  const Checksum sum = checksum(bytes.first(summed));
  if (!std::ranges::equal(sum, bytes.subspan(summed))) {
    refuse_address("the checksum differs; its bytes were changed on the way");
  }
  return bytes.subspan(kPreamble, summed - kPreamble);
}

}  // namespace

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string hex;
  for (const std::byte byte : bytes) {
    hex += kDigits[std::to_integer<unsigned>(byte) >> 4];
    hex += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return hex;
}

Address::~Address() { sodium_memzero(secret.data(), secret.size()); }

std::vector<std::byte> Address::to_bytes() const {
  const std::vector<std::byte> fields = encode_fields(*this);
  WireWriter writer;
  writer.fixed(kAddressMagic);
  writer.number(kVersion);
  writer.number(static_cast<std::uint16_t>(kPreamble + fields.size() + sizeof(Checksum)));
  writer.fixed(fields);
  writer.fixed(checksum(writer.bytes()));
  return writer.take();
}

Address Address::from_bytes(std::span<const std::byte> bytes) {
  WireReader reader(check_envelope(bytes), "address");
  return decode_fields(reader);
}

}  // namespace zerohop::engine
