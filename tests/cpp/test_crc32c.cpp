// The checksum, as a whole and in the parts that threads of a kernel compute.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/crc32c.hpp"
#include "zerohop/crc32c.h"

namespace zerohop {
namespace {

std::vector<std::byte> random_bytes(std::size_t nbytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(nbytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// As `size` threads of a kernel compute it.
std::uint32_t by_threads(std::span<const std::byte> bytes, std::uint32_t size) {
  const auto address = reinterpret_cast<std::uint64_t>(bytes.data());
  std::uint32_t all = 0;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    all ^= device::crc::part(address, bytes.size(), rank, size);
  }
  return ~all;
}

std::uint32_t of_text(const std::string& text) {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())));
}

TEST_CASE("known values") {
  CHECK(of_text("") == 0);
  CHECK(of_text("123456789") == 0xe3069283);
  // RFC 3720, appendix B.4.
  CHECK(crc32c(std::vector<std::byte>(32)) == 0x8a9136aa);
  CHECK(crc32c(std::vector<std::byte>(32, std::byte{0xff})) == 0x62a8ab43);
  std::vector<std::byte> rising(32);
  for (std::size_t i = 0; i < 32; ++i) rising[i] = static_cast<std::byte>(i);
  CHECK(crc32c(rising) == 0x46dd794e);
}

TEST_CASE("however many threads take part, and wherever the bytes begin") {
  const std::vector<std::byte> bytes = random_bytes(5000, 1);
  for (const std::size_t nbytes : {0, 1, 3, 15, 16, 17, 100, 1023, 4096, 4999}) {
    for (const std::size_t begin : {0, 1}) {
      const auto range = std::span(bytes).subspan(begin, nbytes);
      const std::uint32_t whole = crc32c(range);
      for (const std::uint32_t size : {1, 2, 31, 32, 256, 1024}) {
        CHECK(by_threads(range, size) == whole);
      }
    }
  }
}

TEST_CASE("every changed bit is seen") {
  std::vector<std::byte> bytes = random_bytes(200, 2);
  const std::uint32_t before = crc32c(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK(crc32c(bytes) != before);
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST_CASE("a value is never empty") {
  CHECK(device::crc::as_value(0) == 1);
  CHECK(device::crc::as_value(7) == 7);
}

}  // namespace
}  // namespace zerohop
