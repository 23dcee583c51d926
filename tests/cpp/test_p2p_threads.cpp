// Several threads write to one process of this host, while devices write as well and memory is
// closed.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "couple.hpp"

using namespace zerohop;
using namespace zerohop::engine;
using namespace zerohop::testing;

namespace {

constexpr int kThreads = 3;
constexpr std::int64_t kNbytes = 64;

EndpointOptions near(const char* name) {
  EndpointOptions chosen = options(name);
  chosen.p2p = true;
  return chosen;
}

struct Neighbours {
  // One row, written by no other thread.
  engine::TransferPtr write(int row, const char* require = "") {
    const Index index = std::int64_t{row};
    const Memory from = source.slice({&index, 1});
    const RemoteMemory to = far.slice({&index, 1});
    const Peer::Pair pair{&from, &to};
    return to_right->write({&pair, 1}, {.notify = {}, .require = require, .timeout = {}});
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

void finish(const engine::TransferPtr& transfer) {
  REQUIRE(transfer->wait(soon()));
  (void)transfer->result();
}

template <typename Close>
void Neighbours::write_until(Close close) {
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
  const Deadline bound = soon();
  while (busy != kThreads && !bound.passed()) std::this_thread::yield();
  close();
  for (auto& thread : threads) thread.join();
  CHECK(busy == kThreads);
  CHECK(refused == kThreads);
}

}  // namespace

TEST_CASE("every write of several threads is counted once, by the route that it took") {
  Neighbours pair;
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
  Neighbours pair;
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
  Neighbours pair;
  const auto owner = pair.target.pinned()->owner;  // the bytes stay, the right to them does not
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
  Neighbours pair;
  pair.write_until([&] { pair.source.close(); });
  CHECK_THROWS_AS(pair.write(0), RegistrationError);
}

TEST_CASE("threads write until the peer is left") {
  Neighbours pair;
  pair.write_until([&] { pair.to_right->close(soon()); });
  CHECK_THROWS_AS(pair.write(0), PeerLost);
}
