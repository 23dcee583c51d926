// Endpoints on two devices each: shares, the order between rails, and a rail lost and recovered.
#include <cstring>
#include <future>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/runs.hpp"
#include "two_rails.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;

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
  Memory from = host_array(left, {100});
  Memory to = host_array(right, {100});
};

TEST_CASE("a small transfer of host memory takes the rail nearest to its NUMA node, and says so") {
  std::vector<int> all(65);
  std::iota(all.begin(), all.end(), -1);  // -1: the kernel gives no node
  Near near(all);
  finish(write(*near.to_right, near.from, near.to.remote()));
  CHECK(bytes_out(*near.to_right, 0) == 0);
  CHECK(bytes_out(*near.to_right, 1) == 100);
  const Route route = near.to_right->route(near.from, near.to.remote());
  CHECK(route.device == "soft0@127.0.0.2");
  CHECK(contains(route.reason, "the nearest to numa:"));
  Near unknown({99});
  finish(write(*unknown.to_right, unknown.from, unknown.to.remote()));
  CHECK(bytes_out(*unknown.to_right, 0) == 100);
  CHECK(unknown.to_right->route(unknown.from, unknown.to.remote()).reason.find("nearest") ==
        std::string::npos);
}

TEST_CASE("a notification comes behind all shares, whichever rail is the slow one") {
  Rails2 rails;
  const auto [from, to] = rails.arrays(200'000);
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
  const auto [from, to] = rails.arrays(100'000);
  const Route both = rails.to_right->route(from, to.remote());
  CHECK(both.device == kTwo);
  CHECK(contains(both.reason, "soft0 and soft0@127.0.0.2 read and write"));
  CHECK(write(*rails.to_right, from, to.remote())->route().device == kTwo);
  cut(*rails.to_right, 1);
  rails.to_right->rails().at(1)->fail("the wire is cut");
  const Route one = rails.to_right->route(from, to.remote());
  CHECK(one.device == "soft0");
  CHECK(contains(one.reason, "soft0@127.0.0.2 does not serve: the wire is cut"));
}

// --- failures ---

TEST_CASE("a notification waits for what another rail has not delivered") {
  Rails2 rails;
  const auto [from, to] = rails.arrays(200'000);
  fill(from, 1);
  // The second rail is blocked: its queue pair is fresh and not connected yet.
  rails.to_right->rails().at(1)->renew();
  const auto transfer = write(*rails.to_right, from, to.remote(), Notification{9, 1});
  const auto late = rails.to_right->notify({10, 1});
  CHECK_THROWS_AS((void)rails.right.wait_notify(9, 2, /*reset=*/false, within(0.3)),
                  TransferTimeout);
  CHECK(!transfer->done());
  CHECK(!late->done());
  // The transfer fails, and its notification is never seen.
  rails.to_right->rails().at(1)->fail("the wire was cut");
  REQUIRE(transfer->wait(soon()));
  REQUIRE(late->wait(soon()));
  CHECK_THROWS_AS((void)transfer->result(), VerbsError);
  CHECK_THROWS_AS((void)late->result(), VerbsError);
  finish(rails.to_right->notify({11, 1}));
  (void)rails.right.wait_notify(11, 1, /*reset=*/false, soon());
  CHECK(rails.right.peek_notify(9) == 0);
  CHECK(rails.right.peek_notify(10) == 0);
}

TEST_CASE("a transfer cut off between its shares reports that something was written") {
  Rails2 rails;
  const auto [from, to] = rails.arrays(200'000);
  rails.to_right->rails().at(1)->renew();  // blocked
  SUBCASE("by the end of the peer") {
    const auto transfer = write(*rails.to_right, from, to.remote());
    rails.right.close(within(0));
    CHECK(failure_of<PeerLost>(transfer).effect() != Effect::nothing);
  }
  SUBCASE("by the end of the rail that was to carry the notification") {
    const auto transfer = write(*rails.to_right, from, to.remote(), Notification{3, 1});
    rails.to_right->rails().at(0)->fail("the wire was cut");
    rails.to_right->rails().at(1)->fail("the other one was cut");
    const auto error = failure_of<VerbsError>(transfer);
    CHECK(error.effect() == Effect::all);
    CHECK(contains(error.what(), "the wire was cut"));
  }
}

TEST_CASE("a rail that was closed is not waited for where another may come back") {
  Rails2 rails;
  const auto [from, to] = rails.arrays(200'000);
  rails.to_right->rails().at(0)->close([](Effect effect) {
    return Failure{.kind = Failure::Kind::verbs, .message = "it was removed", .effect = effect};
  });
  rails.to_right->rails()
      .at(0)
      ->settle();  // as when the peer reports that it has left the rail, too
  finish(write(*rails.to_right, from, to.remote(), Notification{3, 1}));  // over the other
  rails.to_right->rails().at(1)->fail("the wire was cut");
  const auto pending = write(*rails.to_right, from, to.remote(), Notification{4, 1});
  CHECK(!pending->done());
  rails.to_right->rails().at(1)->fail("the wire is still cut");
  (void)failure_of<Error>(pending);
  CHECK(rails.right.peek_notify(4) == 0);
}

TEST_CASE("later transfers wait until what failed cannot arrive any more") {
  Rails2 rails;
  const auto [from, to] = rails.arrays(100);
  // Blocks the progress thread of the right end, which alone can destroy its queue pair.
  std::promise<void> entered;
  std::promise<void> leave;
  const auto received = rails.to_left->receive(to, 5);
  received->on_done([&] {
    entered.set_value();
    leave.get_future().wait();
  });
  finish(rails.to_right->send(from, 5));
  entered.get_future().wait();
  cut(*rails.to_right, 1);
  const auto later = write(*rails.to_right, from, to.remote());  // over the other rail
  CHECK(!later->wait(within(0.3)));
  leave.set_value();
  finish(later);
}

TEST_CASE("how long rails are in trouble counts from when they last were not") {
  engine::RailGroup group("a peer");
  CHECK(!group.dark());
  group.set_serving(0, false);
  const auto first = group.dark();
  REQUIRE(first);
  group.set_serving(0, false);
  CHECK(group.dark() == first);
  group.set_serving(1, true);
  CHECK(!group.dark());
  group.set_serving(1, false);
  CHECK(*group.dark() > *first);
  group.unsettle(1);
  const auto broke = group.unsettled(1);
  REQUIRE(broke);
  group.unsettle(1);
  CHECK(group.unsettled(1) == broke);
  CHECK(!group.unsettled(0));
  group.settle(1);
  CHECK(!group.unsettled(1));
  group.unsettle(1);
  CHECK(*group.unsettled(1) > *broke);
}

TEST_CASE("rails that break at both ends at once come back") {
  Rails2 rails;
  const auto [from, to] = rails.arrays(200'000);
  const auto all_serve = [&] {
    return serves(*rails.to_right, 0) && serves(*rails.to_right, 1) && serves(*rails.to_left, 0) &&
           serves(*rails.to_left, 1);
  };
  for (std::uint32_t round = 1; round <= 12; ++round) {
    for (const RailIndex rail : {RailIndex{0}, RailIndex{1}}) {
      if (round % 4 != 3 || rail == 0) cut(*rails.to_right, rail);
      if (round % 4 != 2 || rail == 1) cut(*rails.to_left, rail);
    }
    const bool back = wait_for(*rails.to_right, all_serve);
    INFO("round " << round << ", left: " << troubles(*rails.to_right)
                  << ", right: " << troubles(*rails.to_left));
    REQUIRE(back);
    fill(from, round);
    finish(write(*rails.to_right, from, to.remote(), Notification{1, round}));
    CHECK(rails.right.wait_notify(1, 1, /*reset=*/true, soon()).second == round);
    CHECK(equal(from, to));
  }
}

TEST_CASE("one rail fails in mid-transfer: its transfers fail, later ones take the other") {
  Rails2 rails;
  const auto [from, to] = rails.arrays(4 << 20);
  for (const RailIndex rail : {RailIndex{1}, RailIndex{0}}) {
    fill(from, rail);
    const auto pending = write(*rails.to_right, from, to.remote(), Notification{20u + rail, 1});
    cut(*rails.to_right, rail);
    REQUIRE(pending->wait(soon()));
    try {
      (void)pending->result();
      CHECK(rails.right.wait_notify(20u + rail, 1, true, soon()).second == 1);  // it was faster
    } catch (const VerbsError& error) {
      CHECK(error.effect() != Effect::nothing);
      CHECK(contains(error.what(), "the wire was cut"));
      // Only the answer may have been cut off: everything was done, including the notification.
      if (error.effect() != Effect::all) CHECK(rails.right.peek_notify(20u + rail) == 0);
    }
    // Whatever rails serve now, transfers continue, with their notifications.
    finish(write(*rails.to_right, from, to.remote(), Notification{30u + rail, 1}));
    CHECK(rails.right.wait_notify(30u + rail, 1, true, soon()).second == 1);
    CHECK(equal(from, to));
    CHECK(wait_for(*rails.to_right, [&] { return serves(*rails.to_right, rail); }));
    CHECK(wait_for(*rails.to_left, [&] { return serves(*rails.to_left, rail); }));
    const std::uint64_t before = bytes_out(*rails.to_right, rail);
    finish(write(*rails.to_right, from, to.remote()));
    CHECK(bytes_out(*rails.to_right, rail) > before);  // it has its share again
    CHECK(equal(from, to));
  }
  CHECK(rails.to_right->alive());
}

TEST_CASE("send, recv and atomics go on when a rail was lost and found") {
  Rails2 rails;
  const auto [from, into] = rails.arrays(100'000);
  const std::int64_t one[] = {1};
  const Memory counter = rails.right.empty(one, DType::parse("uint64"));
  for (int round = 0; round < 6; ++round) {
    const RailIndex rail = static_cast<RailIndex>(round % 2);
    for (const std::int64_t count : {10, 100'000}) {
      fill(from, static_cast<std::uint32_t>(round + count));
      const std::vector<Index> key{Slice{.start = 0, .stop = count, .step = 1}};
      const auto received = rails.to_left->receive(into.slice(key), 5);
      const auto sent = rails.to_right->send(from.slice(key), 5);
      finish(received);
      finish(sent);
      CHECK(std::memcmp(data(from), data(into), static_cast<std::size_t>(count)) == 0);
    }
    const auto added = rails.to_right->fetch_add(counter.remote(), 1);
    finish(added);
    CHECK(added->result() == static_cast<std::uint64_t>(round));
    cut(*rails.to_right, rail);
    CHECK(wait_for(*rails.to_right, [&] { return serves(*rails.to_right, rail); }));
    CHECK(wait_for(*rails.to_left, [&] { return serves(*rails.to_left, rail); }));
  }
}

TEST_CASE("atomics refuse another adapter's rail as long as the first is out of order") {
  Rails2 rails;
  const std::int64_t one[] = {1};
  const Memory counter = rails.right.empty(one, DType::parse("uint64"));
  cut(*rails.to_right, 0);
  rails.to_right->rails().at(0)->fail("the wire is cut");
  CHECK_THROWS_AS((void)rails.to_right->fetch_add(counter.remote(), 1), RouteUnavailable);
  finish(rails.to_right->notify({1, 1}));  // the other rail carries the rest
}

TEST_CASE("a peer that goes ends everything on every rail") {
  auto rails = std::make_unique<Rails2>();
  const auto [from, to] = rails->arrays(1 << 20);
  const auto received = rails->to_right->receive(from, 1);
  rails->right.close(within(0));
  (void)failure_of<PeerLost>(received);
  CHECK_THROWS_AS((void)write(*rails->to_right, from, to.remote()), PeerLost);
}

}  // namespace
}  // namespace zerohop::testing
