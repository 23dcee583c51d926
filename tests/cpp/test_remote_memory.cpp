#include <doctest/doctest.h>

#include "base/error.hpp"
#include "engine/memory/remote_memory.hpp"

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
