// A message, an open and a share cost a Control with hundreds of peers as much as one with ten: it
// visits the connection concerned, not all of them.
#include <doctest/doctest.h>

#include <deque>
#include <memory>
#include <string>

#include "control_stranger.hpp"
#include "station.hpp"

namespace zerohop::testing {
namespace {

using namespace zerohop::engine;

constexpr std::uint32_t kPeers = 150;

// Peers that stay alive while beat() is called.
class Crowd {
 public:
  explicit Crowd(Station& station) : station_(station) {}

  void add(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      strangers_.emplace_back(station_.address).enter();
      if (i % 16 == 0) beat();
    }
    const auto all = [this] { return station_.control->peers().size() == strangers_.size(); };
    REQUIRE(station_.poller().wait(all, soon()));
  }
  void beat() {
    for (ControlStranger& each : strangers_) each.say(Heartbeat{});
  }
  std::deque<ControlStranger>& strangers() { return strangers_; }

 private:
  Station& station_;
  std::deque<ControlStranger> strangers_;
};

TEST_CASE("what one connection is about is found without a look at the others") {
  Station station;
  Crowd crowd(station);
  crowd.add(kPeers);
  const auto peers = station.control->peers();
  // Ticks visit all, four times a second; the counts here are so large that ticks do not matter,
  // even on a slow machine.
  SUBCASE("a message") {
    constexpr std::uint64_t kMessages = 4000;
    const std::uint64_t before = station.control->looks();
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      station.control->tell(peers.front(), SumUp{.request = i, .parts = {}});
      if (i % 100 == 0) crowd.beat();
    }
    for (ControlStranger& each : crowd.strangers()) {
      if (each.id() == peers.front()->identity().id) each.await<SumUp>(kMessages);
    }
    CHECK(station.control->looks() - before < 20 * kMessages);
  }
  SUBCASE("a share") {
    constexpr std::uint64_t kShares = 4000;
    Endpoint owner(options("owner"));
    const std::int64_t count = 1;
    const Memory memory = owner.empty({&count, 1}, DType::parse("int64"));
    auto& asker = crowd.strangers().front();
    asker.say(Lookup{.request = 1, .name = "the last"});
    asker.await<NotFound>(1);
    const std::uint64_t before = station.control->looks();
    for (std::uint64_t i = 0; i < kShares; ++i) {
      station.control->shares().put(std::to_string(i), memory);
      station.control->on_shared(std::to_string(i));
      if (i % 100 == 0) crowd.beat();
    }
    station.control->shares().put("the last", memory);
    station.control->on_shared("the last");
    asker.await<Found>(1);
    CHECK(station.control->looks() - before < 20 * kShares);
  }
  SUBCASE("an open") {
    constexpr std::uint32_t kOpens = 100;
    const std::uint64_t before = station.control->looks();
    crowd.add(kOpens);
    CHECK(station.control->looks() - before < std::uint64_t{kOpens} * kPeers / 2);
  }
}

}  // namespace
}  // namespace zerohop::testing
