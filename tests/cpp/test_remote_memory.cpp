#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "base/error.hpp"
#include "engine/memory/remote_memory.hpp"
#include "mutate.hpp"

using namespace zerohop;
using namespace zerohop::engine;

namespace {

RemoteMemory sample() {
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

}  // namespace

TEST_CASE("a RemoteMemory survives the wire") {
  const RemoteMemory memory = sample();
  CHECK(RemoteMemory::from_bytes(memory.to_bytes()) == memory);
}

TEST_CASE("a slice names a part of the same registration") {
  const std::vector<Index> key{std::int64_t{2}, Slice{.start = 1, .stop = 5, .step = 2}};
  const RemoteMemory part = sample().slice(key);
  CHECK(part.layout.address == (1u << 20) + 2 * 64 + 4);
  CHECK(part.layout.shape == Dims{2});
  CHECK(part.rkeys == sample().rkeys);
  CHECK(RemoteMemory::from_bytes(part.to_bytes()) == part);
}

TEST_CASE("damaged bytes are refused, or describe memory inside the registered range") {
  const auto bytes = sample().to_bytes();
  testing::for_each_truncation(bytes, [](const std::vector<std::byte>& damaged) {
    CHECK_THROWS_AS(RemoteMemory::from_bytes(damaged), ProtocolError);
  });
  testing::for_each_bit_flip(bytes, [](const std::vector<std::byte>& damaged) {
    try {
      const RemoteMemory memory = RemoteMemory::from_bytes(damaged);
      const Extent extent = memory.layout.extent();
      CHECK((extent.begin == extent.end ||
             (extent.begin >= memory.begin && extent.end <= memory.end)));
    } catch (const ProtocolError&) {
      CHECK(true);  // refused with the type for damaged bytes
    }
  });
}

TEST_CASE("an array that leaves its registered range is refused") {
  RemoteMemory memory = sample();
  memory.end = memory.begin + 64;
  CHECK_THROWS_AS(RemoteMemory::from_bytes(memory.to_bytes()), ProtocolError);
}

TEST_CASE("a RemoteMemory of more rails than there may be is refused") {
  auto bytes = sample().to_bytes();
  constexpr std::size_t kCountAt = 4 + 16;  // after magic and endpoint
  REQUIRE(bytes[kCountAt] == std::byte{3});
  bytes[kCountAt] = std::byte{kMaxRails + 1};
  bytes.resize(bytes.size() + 64);
  CHECK_THROWS_AS(RemoteMemory::from_bytes(bytes), ProtocolError);
}
