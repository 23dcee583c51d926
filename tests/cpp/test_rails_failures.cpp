// Endpoints on two devices each: a rail lost and recovered, and its transfers.
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "two_rails.hpp"

using namespace zerohop;
using namespace zerohop::engine;
using namespace zerohop::testing;

TEST_CASE("a notification waits for what another rail has not delivered") {
  Rails2 rails;
  const Memory from = bytes(rails.left, 200'000);
  const Memory to = bytes(rails.right, 200'000);
  fill(from, 1);
  // The second rail is blocked: its queue pair is fresh and not connected yet.
  rails.to_right->rails().path(1)->renew();
  const auto transfer = write(*rails.to_right, from, to.remote(), Notification{9, 1});
  const auto late = rails.to_right->notify({10, 1});
  CHECK_THROWS_AS((void)rails.right.wait_notify(9, 2, /*reset=*/false, within(0.3)),
                  TransferTimeout);
  CHECK(!transfer->done());
  CHECK(!late->done());
  // The transfer fails, and its notification is never seen.
  rails.to_right->rails().path(1)->give_up("the wire was cut");
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
  const Memory from = bytes(rails.left, 200'000);
  const Memory to = bytes(rails.right, 200'000);
  rails.to_right->rails().path(1)->renew();  // blocked
  SUBCASE("by the end of the peer") {
    const auto transfer = write(*rails.to_right, from, to.remote());
    rails.right.close(within(0));
    REQUIRE(transfer->wait(soon()));
    try {
      (void)transfer->result();
      FAIL("it ended well");
    } catch (const PeerLost& error) {
      CHECK(error.effect() != Effect::nothing);
    }
  }
  SUBCASE("by the end of the rail that was to carry the notification") {
    const auto transfer = write(*rails.to_right, from, to.remote(), Notification{3, 1});
    rails.to_right->rails().path(0)->give_up("the wire was cut");
    rails.to_right->rails().path(1)->give_up("the other one was cut");
    REQUIRE(transfer->wait(soon()));
    try {
      (void)transfer->result();
      FAIL("it ended well");
    } catch (const VerbsError& error) {
      CHECK(error.effect() == Effect::all);
      CHECK(std::string(error.what()).find("the wire was cut") != std::string::npos);
    }
  }
}

TEST_CASE("a rail that was closed is not waited for where another may come back") {
  Rails2 rails;
  const Memory from = bytes(rails.left, 200'000);
  const Memory to = bytes(rails.right, 200'000);
  rails.to_right->rails().path(0)->close([](Effect effect) {
    return Failure{.kind = Failure::Kind::verbs, .message = "it was removed", .effect = effect};
  });
  rails.to_right->rails()
      .path(0)
      ->settle();  // as when the peer reports that it has left the rail, too
  finish(write(*rails.to_right, from, to.remote(), Notification{3, 1}));  // over the other
  rails.to_right->rails().path(1)->give_up("the wire was cut");
  const auto pending = write(*rails.to_right, from, to.remote(), Notification{4, 1});
  CHECK(!pending->done());
  rails.to_right->rails().path(1)->give_up("the wire is still cut");
  REQUIRE(pending->wait(soon()));
  CHECK_THROWS_AS((void)pending->result(), Error);
  CHECK(rails.right.peek_notify(4) == 0);
}

TEST_CASE("later transfers wait until what failed cannot arrive any more") {
  Rails2 rails;
  const Memory from = bytes(rails.left, 100);
  const Memory to = bytes(rails.right, 100);
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
  engine::PathGroup group("a peer");
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
  const Memory from = bytes(rails.left, 200'000);
  const Memory to = bytes(rails.right, 200'000);
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
  const Memory from = bytes(rails.left, 4 << 20);
  const Memory to = bytes(rails.right, 4 << 20);
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
      CHECK(std::string(error.what()).find("the wire was cut") != std::string::npos);
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
  const Memory from = bytes(rails.left, 100'000);
  const Memory into = bytes(rails.right, 100'000);
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
  rails.to_right->rails().path(0)->give_up("the wire is cut");
  CHECK_THROWS_AS((void)rails.to_right->fetch_add(counter.remote(), 1), RouteUnavailable);
  finish(rails.to_right->notify({1, 1}));  // the other rail carries the rest
}

TEST_CASE("a peer that goes ends everything on every rail") {
  auto rails = std::make_unique<Rails2>();
  const Memory from = bytes(rails->left, 1 << 20);
  const Memory to = bytes(rails->right, 1 << 20);
  const auto received = rails->to_right->receive(from, 1);
  rails->right.close(within(0));
  REQUIRE(received->wait(soon()));
  CHECK_THROWS_AS((void)received->result(), PeerLost);
  CHECK_THROWS_AS((void)write(*rails->to_right, from, to.remote()), PeerLost);
}
