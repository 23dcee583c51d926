// Encoding and bounds-checked decoding of plain values.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>

#include "base/wire.hpp"
#include "mutate.hpp"

namespace zerohop {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<unsigned> values) {
  std::vector<std::byte> bytes;
  for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

std::vector<std::byte> one_of_each() {
  WireWriter writer;
  writer.number(std::uint8_t{0xab});
  writer.number(std::uint16_t{0x1234});
  writer.number(std::uint32_t{0xdeadbeef});
  writer.number(std::numeric_limits<std::uint64_t>::max() - 1);
  writer.fixed(bytes_of({1, 2, 3}));
  writer.text("grid", 4);
  writer.blob(bytes_of({9}), 10);
  return writer.take();
}

struct Sample {
  std::uint8_t u8 = 0;
  std::uint16_t u16 = 0;
  std::uint32_t u32 = 0;
  std::uint64_t u64 = 0;
  std::array<std::byte, 3> fixed{};
  std::string text;
  std::size_t blob_nbytes = 0;
};

Sample read_one_of_each(std::span<const std::byte> bytes) {
  WireReader reader(bytes, "sample");
  Sample sample;
  sample.u8 = reader.number<std::uint8_t>();
  sample.u16 = reader.number<std::uint16_t>();
  sample.u32 = reader.number<std::uint32_t>();
  sample.u64 = reader.number<std::uint64_t>();
  reader.fixed(sample.fixed);
  sample.text = reader.text(4);
  sample.blob_nbytes = reader.blob(10).size();
  reader.finish();
  return sample;
}

TEST_CASE("values come back as they were written") {
  const Sample sample = read_one_of_each(one_of_each());
  CHECK(sample.u8 == 0xab);
  CHECK(sample.u16 == 0x1234);
  CHECK(sample.u32 == 0xdeadbeef);
  CHECK(sample.u64 == std::numeric_limits<std::uint64_t>::max() - 1);
  CHECK(sample.fixed == std::array{std::byte{1}, std::byte{2}, std::byte{3}});
  CHECK(sample.text == "grid");
  CHECK(sample.blob_nbytes == 1);
}

TEST_CASE("numbers are little-endian") {
  WireWriter writer;
  writer.number(std::uint32_t{0x01020304});
  CHECK(writer.take() == bytes_of({4, 3, 2, 1}));
}

TEST_CASE("every truncation is a ProtocolError") {
  testing::for_each_truncation(one_of_each(), [](const std::vector<std::byte>& cut) {
    CHECK_THROWS_AS(read_one_of_each(cut), ProtocolError);
  });
}

TEST_CASE("trailing bytes are a ProtocolError that counts them") {
  std::vector<std::byte> longer = one_of_each();
  longer.push_back(std::byte{0});
  CHECK_THROWS_WITH_AS(read_one_of_each(longer),
                       "invalid sample: 1 unexpected bytes at the end; both sides must run the "
                       "same version of zerohop",
                       ProtocolError);
}

TEST_CASE("a length beyond the limit is refused before the bytes are looked at") {
  const std::vector<std::byte> bytes = bytes_of({0xff, 0xff, 0xff, 0xff});
  WireReader reader(bytes, "sample");
  CHECK_THROWS_WITH_AS(reader.blob(16),
                       "invalid sample: a field claims 4294967295 bytes, more than the 16 allowed; "
                       "both sides must run the same version of zerohop",
                       ProtocolError);
}

TEST_CASE("the writer refuses what the reader would refuse") {
  WireWriter writer;
  CHECK_THROWS_AS(writer.text("abcde", 4), ProtocolError);
  CHECK(writer.bytes().empty());
}

TEST_CASE("empty fields are fine") {
  WireWriter writer;
  writer.text("", 0);
  const std::vector<std::byte> bytes = writer.take();
  WireReader reader(bytes, "sample");
  CHECK(reader.text(0).empty());
  reader.fixed({});
  CHECK(reader.left() == 0);
  reader.finish();
}

}  // namespace
}  // namespace zerohop
