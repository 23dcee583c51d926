// Connections are counted by peer, and peers that left long ago are forgotten.
#include <doctest/doctest.h>

#include <cstring>

#include "engine/channel/established.hpp"

using namespace std::chrono_literals;
using namespace zerohop::engine;

namespace {

EndpointId id_of(std::uint32_t number) {
  EndpointId id{};
  std::memcpy(id.data(), &number, sizeof number);
  return id;
}

}  // namespace

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
