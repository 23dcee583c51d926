// Endpoints on two devices each: shares, and the order between rails.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/runs.hpp"
#include "two_rails.hpp"

using namespace zerohop;
using namespace zerohop::engine;
using namespace zerohop::testing;

TEST_CASE("shares cover all bytes once, on every rail of the mask") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    const std::uint64_t nbytes = random() % (std::uint64_t{1} << (random() % 40));
    const RailMask mask = 1 + static_cast<RailMask>(random() % 255);
    const Striping striping(nbytes, mask, kStripe, static_cast<RailIndex>(random() % 8));
    std::uint64_t at = 0;
    for (const Stripe& stripe : striping.stripes()) {
      CHECK(stripe.begin == at);
      CHECK(((mask >> stripe.rail) & 1) == 1);
      at += stripe.nbytes;
    }
    CHECK(at == nbytes);
    if (nbytes <= kStripe) CHECK(striping.stripes().size() == 1);
  }
  CHECK(Striping(100, 0b110, kStripe, 2).stripes()[0].rail == 2);  // the nearest
  CHECK(Striping(100, 0b110, kStripe, 0).stripes()[0].rail == 1);  // the nearest is not there
}

TEST_CASE("runs that are skipped are those that next() would give") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 500; ++round) {
    const std::int64_t a = 1 + static_cast<std::int64_t>(random() % 5);
    const std::int64_t b = 1 + static_cast<std::int64_t>(random() % 5);
    const Layout one{1 << 20, DType::parse("int32"), {a, 3, b}, {400, 24, 4 * 2}};
    const Layout two{2 << 20, DType::parse("int32"), {a, 3, b}, {-300, 40, 4}};
    Runs walked(one, two);
    Runs skipped(one, two);
    std::uint64_t at = 0;
    while (at < walked.count()) {
      const std::uint64_t step = random() % (walked.count() - at + 1);
      Run run{};
      for (std::uint64_t i = 0; i < step; ++i) REQUIRE(walked.next(run));
      skipped.skip(step);
      at += step;
      Run other{};
      const bool more = walked.next(run);
      REQUIRE(skipped.next(other) == more);
      if (!more) break;
      CHECK(run.a_address == other.a_address);
      CHECK(run.b_address == other.b_address);
      ++at;
    }
    Run run{};
    skipped.skip(1000);
    CHECK(!skipped.next(run));
  }
}

namespace {

// Two endpoints; for the left one, memory on any of `nodes` is nearest to its second rail.
struct Near {
  explicit Near(const std::vector<int>& nodes) : left(chosen(nodes)) {}
  static EndpointOptions chosen(const std::vector<int>& nodes) {
    EndpointOptions options = on(kTwo, "left");
    for (const int node : nodes) options.nearest.emplace("numa:" + std::to_string(node), 1);
    return options;
  }
  Endpoint left;
  Endpoint right{on(kTwo, "right")};
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  Memory from = bytes(left, 100);
  Memory to = bytes(right, 100);
};

}  // namespace

TEST_CASE("a small transfer of host memory takes the rail nearest to its NUMA node, and says so") {
  std::vector<int> all(65);
  std::iota(all.begin(), all.end(), -1);  // -1: the kernel gives no node
  Near near(all);
  finish(write(*near.to_right, near.from, near.to.remote()));
  CHECK(bytes_out(*near.to_right, 0) == 0);
  CHECK(bytes_out(*near.to_right, 1) == 100);
  const Route route = near.to_right->route(near.from, near.to.remote());
  CHECK(route.device == "soft0@127.0.0.2");
  CHECK(route.reason.find("the nearest to numa:") != std::string::npos);
  Near unknown({99});
  finish(write(*unknown.to_right, unknown.from, unknown.to.remote()));
  CHECK(bytes_out(*unknown.to_right, 0) == 100);
  CHECK(unknown.to_right->route(unknown.from, unknown.to.remote()).reason.find("nearest") ==
        std::string::npos);
}

TEST_CASE("a route shows the settings of every rail") {
  Rails2 rails;
  const Memory from = bytes(rails.left, 10);
  const Memory to = bytes(rails.right, 10);
  const auto shown = [&](std::size_t rail, const std::string& name) {
    const Settings all = rails.to_right->route(from, to.remote()).rails.at(rail);
    const auto found =
        std::ranges::find(all, name, [](const auto& setting) { return setting.first; });
    return found == all.end() ? Setting("") : found->second;
  };
  CHECK(rails.to_right->route(from, to.remote()).rails.size() == 2);
  CHECK(std::get<std::string>(shown(0, "device")) == "soft0");
  CHECK(std::get<std::string>(shown(1, "device")) == "soft0@127.0.0.2");
  CHECK(shown(0, "gid") != shown(1, "gid"));
  for (const std::size_t rail : {0u, 1u}) CHECK(std::get<std::int64_t>(shown(rail, "mtu")) > 0);
}

TEST_CASE("a notification comes behind all shares, whichever rail is the slow one") {
  Rails2 rails;
  const Memory from = bytes(rails.left, 200'000);
  const Memory to = bytes(rails.right, 200'000);
  // Many at once, so that the rails drift apart; each overwrites the array with one value.
  for (std::uint32_t round = 1; round <= 60; ++round) {
    std::memset(data(from), static_cast<int>(round), 200'000);
    const auto transfer = write(*rails.to_right, from, to.remote(), Notification{7, round});
    const auto [slot, value] = rails.right.wait_notify(7, 1, /*reset=*/true, soon());
    CHECK(value == round);
    for (const std::size_t i : {0u, 99'999u, 100'000u, 102'400u, 199'999u}) {
      CHECK(data(to)[i] == static_cast<std::uint8_t>(round));
    }
    finish(transfer);
  }
}

TEST_CASE("the route names the rails and says why one does not serve") {
  Rails2 rails;
  const Memory from = bytes(rails.left, 100'000);
  const Memory to = bytes(rails.right, 100'000);
  const Route both = rails.to_right->route(from, to.remote());
  CHECK(both.device == kTwo);
  CHECK(both.reason.find("soft0 and soft0@127.0.0.2 read and write") != std::string::npos);
  CHECK(write(*rails.to_right, from, to.remote())->route().device == kTwo);
  cut(*rails.to_right, 1);
  rails.to_right->rails().path(1)->give_up("the wire is cut");
  const Route one = rails.to_right->route(from, to.remote());
  CHECK(one.device == "soft0");
  CHECK(one.reason.find("soft0@127.0.0.2 does not serve: the wire is cut") != std::string::npos);
}
