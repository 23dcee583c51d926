// Two endpoints of one process on soft0: the engine with all its threads, for the sanitizers.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "couple.hpp"

using namespace zerohop;
using namespace zerohop::engine;
using namespace zerohop::testing;

namespace {

Memory numbers(Endpoint& endpoint, std::int64_t count) {
  const std::vector<std::int64_t> shape{count};
  return endpoint.empty(shape, DType::parse("int64"));
}

std::int64_t* values(const Memory& memory) {
  return reinterpret_cast<std::int64_t*>(memory.layout().address);
}

RemoteMemory element(const RemoteMemory& array, std::int64_t index) {
  const Index key = Slice{.start = index, .stop = index + 1, .step = 1};
  return array.slice({&key, 1});
}

}  // namespace

TEST_CASE("data is there when its notification is seen") {
  Couple couple;
  const Memory from = numbers(couple.left, 1000);
  const Memory to = numbers(couple.right, 1000);
  for (std::uint32_t round = 1; round <= 200; ++round) {
    std::iota(values(from), values(from) + 1000, round);
    const auto transfer = write(*couple.to_right, from, to.remote(), Notification{5, round});
    CHECK(couple.right.wait_notify(5, 1, true, soon()).second == round);
    REQUIRE(values(to)[0] == round);
    REQUIRE(values(to)[999] == round + 999);
    finish(transfer);
  }
}

TEST_CASE("a notification is there although its sender has left at once") {
  constexpr std::uint32_t kRounds = 400;
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    Endpoint right(options("right"));
    const Memory to = numbers(right, 1);
    std::thread sender([&] {
      Endpoint left(options("left"));
      const auto to_right = left.connect(right.address().to_bytes(), soon());
      finish(write(*to_right, numbers(left, 1), to.remote(), Notification{5, round}));
    });
    CHECK(right.wait_notify(5, 1, true, soon()).second == round);
    sender.join();
  }
}

TEST_CASE("threads share a peer: transfers, atomics and messages of all come through") {
  constexpr int kThreads = 4;
  constexpr int kRounds = 300;
  Couple couple;
  const Memory counter = numbers(couple.right, 1);
  const RemoteMemory word = counter.remote();
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::uint32_t id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] {
      try {
        const Memory out = numbers(couple.left, 600);
        const Memory in = numbers(couple.right, 600);
        for (int round = 0; round < kRounds; ++round) {
          values(out)[0] = round;
          const auto received = couple.to_left->receive(in, id);
          const auto sent = couple.to_right->send(out, id);
          finish(couple.to_right->fetch_add(element(word, 0), 1));
          finish(received);
          finish(sent);
          if (values(in)[0] != round || received->result() != 4800) ++failures;
        }
      } catch (const std::exception&) {
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(values(counter)[0] == kThreads * kRounds);
}

TEST_CASE("a look-up that is interrupted leaves no question behind") {
  std::atomic<bool> interrupts{false};
  EndpointOptions chosen = options("left");
  chosen.interrupt = [&] {
    if (interrupts.load()) throw std::runtime_error("Ctrl-C");
  };
  Endpoint left(chosen);
  Endpoint right(options("right"));
  const auto to_right = left.connect(right.address().to_bytes(), soon());
  interrupts.store(true);
  CHECK_THROWS_AS((void)to_right->lookups().find("nothing", soon(), /*now=*/false),
                  std::runtime_error);
  CHECK(to_right->lookups().unanswered() == 0);
}

TEST_CASE("closing in the middle of traffic fails what is pending, and nothing else") {
  for (int round = 0; round < 10; ++round) {
    Couple couple;
    const Memory from = numbers(couple.left, 1 << 16);
    const Memory to = numbers(couple.right, 1 << 16);
    const auto unmatched = couple.to_right->receive(from, 9);
    std::thread closer([&] { couple.right.close(Deadline::after(Deadline::Seconds(0))); });
    try {
      for (;;) finish(write(*couple.to_right, from, to.remote()));
    } catch (const PeerLost& lost) {
      CHECK(contains(lost.what(), "right"));
    }
    closer.join();
    (void)failure_of<PeerLost>(unmatched);
    CHECK_FALSE(couple.to_right->alive());
  }
}

TEST_CASE("endpoints that connect to each other at once get one connection") {
  for (int round = 0; round < 10; ++round) {
    Endpoint left(options("left"));
    Endpoint right(options("right"));
    std::shared_ptr<Peer> there;
    std::shared_ptr<Peer> back;
    std::thread dialler([&] { there = left.connect(right.address().to_bytes(), soon()); });
    back = right.connect(left.address().to_bytes(), soon());
    dialler.join();
    const Memory from = numbers(left, 4);
    const Memory to = numbers(right, 4);
    finish(write(*there, from, to.remote()));
    const Memory from_right = numbers(right, 4);
    finish(write(*back, from_right, from.remote()));
    CHECK(left.peers().size() == 1);
    CHECK(right.peers().size() == 1);
  }
}
