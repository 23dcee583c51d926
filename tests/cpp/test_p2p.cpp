// Copies without devices: their order with transfers through devices, and several threads that
// write to one process of this host while memory is closed.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <span>
#include <thread>
#include <vector>

#include "couple.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;

// --- order ---

// soft0, posing as an adapter: what it has acknowledged may not be visible yet.
std::vector<DeviceChoice> adapter() {
  auto table = std::make_shared<driver::Verbs>(*softhca::verbs());
  table->reg_copied_mr = nullptr;
  return {{rdma::Device::open(std::move(table), "soft0"), "a test says so"}};
}

EndpointOptions near_on(const char* name, bool software) {
  EndpointOptions chosen = near(name);
  if (!software) chosen.open_devices = adapter;
  return chosen;
}

struct Neighbours {
  explicit Neighbours(bool software)
      : left(near_on("left", software)), right(near_on("right", software)) {}
  std::uint64_t work_requests() const {
    return to_right->rails().at(0)->stats().work_requests.load();
  }
  TransferPtr write(const char* require, std::optional<Notification> notify = {}) {
    return testing::write(*to_right, source, far, by(require, notify));
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

// Blocks the progress thread of the right endpoint.
class Blocked {
 public:
  explicit Blocked(Neighbours& pair)
      : back_(pair.left.empty(Neighbours::kShape, pair.source.layout().dtype)) {
    std::thread::id caller = std::this_thread::get_id();
    while (caller == std::this_thread::get_id()) {  // where the write was done at once
      const auto ran = std::make_shared<std::promise<std::thread::id>>();
      write(*pair.to_left, pair.target, back_.remote(), by("host"))
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
  const auto reported = pair.to_right->notify({1, 1});  // the first one on a route is confirmed
  finish(reported);
  finish(pair.write("p2p"));
  const auto& notifications = reported->route().stats->notifications;
  const std::uint64_t before = notifications.load();
  CHECK_FALSE(pair.to_right->put(Notification{1, 2}));
  CHECK(pair.right.reset_notify(1) == 2);
  CHECK(notifications.load() == before + 1);
  CHECK_FALSE(pair.to_right->put(over, by("", Notification{1, 3})));
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
    REQUIRE(eventually([&] { return pair.right.peek_notify(2) == value; }));
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
  pair.to_right->rails().at(0)->to_error("a test says so");
  CHECK(pair.write("")->route().kind == "host");
}

TEST_CASE("an error of a notification that waits for a device states that its data was copied") {
  for (const bool copied : {true, false}) {
    CAPTURE(copied);
    Neighbours pair(/*software=*/true);
    Blocked blocked(pair);  // the queue pair is not repaired
    const auto path = pair.to_right->rails().at(0);
    const auto transfer = std::make_shared<Transfer>(path->poller(), 64, nullptr);
    if (copied) transfer->note_placed();
    path->to_error("a test says so");
    Job job(transfer, IBV_WR_RDMA_WRITE);
    job.then(notify_message({1, 1}));
    path->submit_message(std::move(job), soon());
    CHECK_FALSE(transfer->done());
    pair.to_right->close(within(0));
    CHECK(failure_of<PeerLost>(transfer).effect() == (copied ? Effect::all : Effect::nothing));
  }
}

// --- threads ---

constexpr int kThreads = 3;
constexpr std::int64_t kNbytes = 64;

struct Rows {
  // One row, written by no other thread.
  TransferPtr write(int row, const char* require = "") {
    const Index index = std::int64_t{row};
    const Memory from = source.slice({&index, 1});
    const RemoteMemory to = far.slice({&index, 1});
    return testing::write(*to_right, from, to, by(require));
  }
  // Each thread writes until it is refused, which happens after `close` was called.
  template <typename Close>
  void write_until(Close close);

  static constexpr std::array<std::int64_t, 2> kShape{kThreads, kNbytes};
  Endpoint left{near("left")};
  Endpoint right{near("right")};
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  Memory source = left.empty(kShape, DType::parse("uint8"));
  Memory target = right.empty(kShape, DType::parse("uint8"));
  RemoteMemory far = target.remote();
};

template <typename Close>
void Rows::write_until(Close close) {
  std::atomic<int> busy{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      try {
        const Deadline bound = soon();
        for (int n = 0; !bound.passed(); ++n) {
          const auto transfer = write(i);
          if (!transfer->wait(soon())) return;
          (void)transfer->result();
          if (n == 100) busy.fetch_add(1);
        }
      } catch (const Error&) {
        refused.fetch_add(1);
      }
    });
  }
  CHECK(eventually([&] { return busy == kThreads; }));
  close();
  for (auto& thread : threads) thread.join();
  CHECK(refused == kThreads);
}

TEST_CASE("every write of several threads is counted once, by the route that it took") {
  Rows pair;
  constexpr std::uint64_t kWrites = 500;
  finish(pair.write(0));
  std::atomic<std::uint64_t> copied{1};
  std::atomic<bool> wrong{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (std::uint64_t n = 0; n < kWrites; ++n) {
        const bool by_device = i == 0 && n % 10 == 0;
        const auto transfer = pair.write(i, by_device ? "host" : "");
        if (transfer->route().kind == "p2p") copied.fetch_add(1);
        if (!transfer->wait(soon()) || transfer->failed()) wrong = true;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK_FALSE(wrong);
  std::uint64_t writes = 0;
  for (const auto& [name, stats] : pair.to_right->route_stats()) {
    const std::uint64_t of_route = stats->operations[0].load();
    CHECK(stats->bytes_out.load() == of_route * kNbytes);
    CHECK(stats->under_way.load() == 0);
    if (name.first == "p2p") CHECK(of_route == copied.load());
    writes += of_route;
  }
  CHECK(writes == kThreads * kWrites + 1);
}

TEST_CASE("a notification without a device is behind what a device wrote before it") {
  Rows pair;
  auto* const ours = reinterpret_cast<std::byte*>(pair.source.layout().address);
  const auto* const theirs = reinterpret_cast<const std::byte*>(pair.target.layout().address);
  for (std::uint32_t round = 1; round <= 200; ++round) {
    const auto mark = static_cast<std::byte>(round);
    finish(pair.write(0));
    std::memset(ours, static_cast<int>(mark), kNbytes);
    const auto by_device = pair.write(0, "host");
    const auto notified = pair.to_right->notify({3, round});
    CHECK(pair.right.wait_notify(3, 1, true, soon()).second == round);
    REQUIRE(theirs[kNbytes - 1] == mark);
    finish(by_device);
    finish(notified);
  }
}

TEST_CASE("threads write until the memory of the peer is closed, and nothing lands behind that") {
  Rows pair;
  const auto owner =
      pair.target.registration()->owner;  // the bytes stay, the right to them does not
  auto* const bytes = reinterpret_cast<std::byte*>(pair.target.layout().address);
  constexpr std::int64_t kAll = kThreads * kNbytes;
  std::memset(reinterpret_cast<void*>(pair.source.layout().address), 1, kAll);
  pair.write_until([&] {
    pair.target.close();
    std::memset(bytes, 2, kAll);
  });
  for (std::int64_t i = 0; i < kAll; ++i) REQUIRE(bytes[i] == std::byte{2});
}

TEST_CASE("threads write until their own memory is closed") {
  Rows pair;
  pair.write_until([&] { pair.source.close(); });
  CHECK_THROWS_AS(pair.write(0), RegistrationError);
}

TEST_CASE("threads write until the peer is left") {
  Rows pair;
  pair.write_until([&] { pair.to_right->close(soon()); });
  CHECK_THROWS_AS(pair.write(0), PeerLost);
}

}  // namespace
}  // namespace zerohop::testing
