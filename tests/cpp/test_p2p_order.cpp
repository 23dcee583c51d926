// The order between transfers through devices and copies without them.
#include <doctest/doctest.h>

#include <algorithm>
#include <future>
#include <span>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "couple.hpp"
#include "softhca/softhca.hpp"

using namespace zerohop;
using namespace zerohop::engine;
using namespace zerohop::testing;

namespace {

// soft0, posing as an adapter: what it has acknowledged may not be visible yet.
std::vector<DeviceChoice> adapter() {
  auto table = std::make_shared<driver::Verbs>(*softhca::verbs());
  table->reg_copied_mr = nullptr;
  return {{rdma::Device::open(std::move(table), "soft0"), "a test says so"}};
}

EndpointOptions near(const char* name, bool software) {
  EndpointOptions chosen = options(name);
  chosen.p2p = true;
  if (!software) chosen.open_devices = adapter;
  return chosen;
}

struct Neighbours {
  explicit Neighbours(bool software)
      : left(near("left", software)), right(near("right", software)) {}
  std::uint64_t work_requests() const {
    return to_right->rails().path(0)->stats().work_requests.load();
  }
  engine::TransferPtr write(const char* require, std::optional<Notification> notify = {}) {
    const Peer::Pair pair{&source, &far};
    return to_right->write({&pair, 1}, {.notify = notify, .require = require, .timeout = {}});
  }

  static constexpr std::int64_t kShape[] = {64};
  Endpoint left;
  Endpoint right;
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<Peer> to_left = right.accept(soon());
  Memory source = left.empty(kShape, DType::parse("uint8"));
  Memory target = right.empty(kShape, DType::parse("uint8"));
  RemoteMemory far = target.remote();
};

void finish(const engine::TransferPtr& transfer) {
  REQUIRE(transfer->wait(soon()));
  (void)transfer->result();
}

// Blocks the progress thread of the right endpoint.
class Blocked {
 public:
  explicit Blocked(Neighbours& pair)
      : back_(pair.left.empty(Neighbours::kShape, pair.source.layout().dtype)) {
    const RemoteMemory to = back_.remote();
    const Peer::Pair over{&pair.target, &to};
    std::thread::id caller = std::this_thread::get_id();
    while (caller == std::this_thread::get_id()) {  // where the write was done at once
      const auto ran = std::make_shared<std::promise<std::thread::id>>();
      pair.to_left->write({&over, 1}, {.notify = {}, .require = "host", .timeout = {}})
          ->on_done([ran, open = open_, here = std::this_thread::get_id()] {
            ran->set_value(std::this_thread::get_id());
            if (std::this_thread::get_id() != here) open.wait();
          });
      caller = ran->get_future().get();
    }
  }
  ~Blocked() { opening_.set_value(); }

 private:
  Memory back_;
  std::promise<void> opening_;
  std::shared_future<void> open_ = opening_.get_future().share();
};

}  // namespace

TEST_CASE("a notification without a device does not overtake what an adapter only acknowledged") {
  for (const bool software : {true, false}) {
    CAPTURE(software);
    Neighbours pair(software);
    finish(pair.write("p2p", Notification{1, 1}));
    CHECK(pair.work_requests() == 0);
    finish(pair.write("host"));
    const std::uint64_t before = pair.work_requests();
    finish(pair.write("p2p", Notification{1, 2}));
    CHECK(pair.work_requests() == before + (software ? 0 : 1));
    CHECK(pair.right.wait_notify(1, 1, false, soon()).first == 1);
    // Once the peer has confirmed its arrival, later ones need no device.
    const Deadline bound = soon();
    for (std::uint64_t posted = 0; posted != pair.work_requests();) {
      REQUIRE_FALSE(bound.passed());
      posted = pair.work_requests();
      finish(pair.write("p2p", Notification{1, 3}));
    }
  }
}

TEST_CASE("what is put has no Transfer where it ends in the call, and overtakes nothing") {
  Neighbours pair(/*software=*/false);
  const Peer::Pair over{&pair.source, &pair.far};
  const auto told = pair.to_right->notify({1, 1});  // the first one on a route is confirmed
  finish(told);
  finish(pair.write("p2p"));
  const auto& notifications = told->route().stats->notifications;
  const std::uint64_t before = notifications.load();
  CHECK_FALSE(pair.to_right->put(Notification{1, 2}));
  CHECK(pair.right.reset_notify(1) == 2);
  CHECK(notifications.load() == before + 1);
  CHECK_FALSE(
      pair.to_right->put(over, {.notify = Notification{1, 3}, .require = {}, .timeout = {}}));
  CHECK(pair.right.reset_notify(1) == 3);
  finish(pair.write("host"));  // may not be visible yet
  const std::uint64_t posted = pair.work_requests();
  const auto behind = pair.to_right->put(Notification{1, 4});
  REQUIRE(behind);
  finish(behind);
  CHECK(pair.work_requests() == posted + 1);
  CHECK(pair.right.wait_notify(1, 1, true, soon()).second == 4);
}

TEST_CASE("bytes that nobody has registered are put by p2p, or not at all") {
  Neighbours pair(/*software=*/false);
  const std::vector<std::byte> head(16, std::byte{7}), body(48, std::byte{8});
  const Peer::Parts parts{head, body};
  const auto* const there = reinterpret_cast<const std::byte*>(pair.target.layout().address);
  const auto put = [&](const RemoteMemory& to) { return pair.to_right->put(parts, to, {1, 5}); };
  CHECK_FALSE(put(pair.far));  // the route is not open yet
  finish(pair.write("p2p"));
  CHECK(*there == std::byte{0});
  CHECK(pair.right.peek_notify(1) == 0);
  CHECK(put(pair.far));
  CHECK(std::ranges::equal(std::span(there, 16), head));
  CHECK(std::ranges::equal(std::span(there + 16, 48), body));
  CHECK(pair.right.reset_notify(1) == 5);
  RemoteMemory beyond = pair.far;
  beyond.layout.address += 16;
  CHECK_FALSE(put(beyond));
  CHECK(pair.right.peek_notify(1) == 0);
  pair.right.close(soon());
  CHECK_THROWS_AS(
      {
        for (const Deadline bound = soon(); !bound.passed();) put(pair.far);
      },
      PeerLost);
}

TEST_CASE("one answer after the other is asked for, however many notifications go by a device") {
  Neighbours pair(/*software=*/true);
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t value = 1000u + static_cast<std::uint32_t>(round);
    finish(pair.write("host", Notification{2, 1}));
    finish(pair.write("p2p", Notification{2, 2}));
    finish(pair.write("p2p", Notification{2, value}));
    const auto is_last = [&] { return pair.right.peek_notify(2) == value; };
    const Deadline bound = soon();
    while (!is_last()) REQUIRE_FALSE(bound.passed());
  }
}

TEST_CASE("what devices are found not to have to do is asked again when a queue pair breaks") {
  Neighbours pair(/*software=*/true);
  for (int i = 0; i < 2; ++i) {
    const auto copied = pair.write("");
    CHECK(copied->route().kind == "p2p");
    finish(copied);
  }
  const Blocked blocked(pair);  // the queue pair is not repaired
  pair.to_right->rails().path(0)->abandon("a test says so");
  CHECK(pair.write("")->route().kind == "host");
}

TEST_CASE("an error of a notification that waits for a device states that its data was copied") {
  for (const bool copied : {true, false}) {
    CAPTURE(copied);
    Neighbours pair(/*software=*/true);
    Blocked blocked(pair);  // the queue pair is not repaired
    const auto path = pair.to_right->rails().path(0);
    const auto transfer = std::make_shared<Transfer>(path->poller(), 64, nullptr);
    if (copied) transfer->note_placed();
    path->abandon("a test says so");
    Job job(transfer, IBV_WR_RDMA_WRITE);
    job.then(notify_message({1, 1}));
    path->submit_message(std::move(job), soon());
    CHECK_FALSE(transfer->done());
    pair.to_right->close(within(0));
    REQUIRE(transfer->wait(soon()));
    try {
      (void)transfer->result();
      FAIL("it did not fail");
    } catch (const PeerLost& error) {
      CHECK(error.effect() == (copied ? Effect::all : Effect::nothing));
    }
  }
}
