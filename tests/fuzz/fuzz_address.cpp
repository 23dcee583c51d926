// Bytes that somebody passes to Endpoint.connect(): as they come, and with a checksum that fits.
#include <sodium.h>

#include <array>

#include "base/error.hpp"
#include "base/wire.hpp"
#include "engine/channel/address.hpp"
#include "engine/channel/cipher.hpp"
#include "input.hpp"

namespace {

using zerohop::engine::Address;

// The fields as they are, in an envelope as Address::to_bytes() makes it.
std::vector<std::byte> in_envelope(std::span<const std::byte> fields) {
  zerohop::engine::prepare_sodium();
  zerohop::WireWriter out;
  out.fixed(std::as_bytes(std::span("zhad", 4)));
  out.number(std::uint8_t{1});
  out.number(static_cast<std::uint16_t>(7 + fields.size() + 16));
  out.fixed(fields);
  std::array<unsigned char, 16> sum;
  crypto_generichash(sum.data(), sum.size(),
                     reinterpret_cast<const unsigned char*>(out.bytes().data()), out.bytes().size(),
                     nullptr, 0);
  out.fixed(std::as_bytes(std::span(sum)));
  return out.take();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  zerohop::fuzz::Input input(data, nbytes);
  const bool raw = input.flag();
  std::vector<std::byte> bytes = input.rest();
  if (!raw) bytes = in_envelope(bytes);
  try {
    const Address address = Address::from_bytes(bytes);
    zerohop::fuzz::require(Address::from_bytes(address.to_bytes()) == address,
                           "an address is encoded in one way only");
  } catch (const zerohop::ProtocolError&) {
  }
  return 0;
}
