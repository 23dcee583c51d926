// Injected faults on soft0: the promises of a reliable connection hold, or fail as they should.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include "soft_side.hpp"
#include "softhca/device_faults.hpp"

using namespace zerohop::testing;
using zerohop::softhca::Fault;
using zerohop::softhca::Faults;

namespace {

// Short ack timeouts: 4.096 us * 2^8 is 1 ms.
constexpr SideOptions kQuick{.timeout = 8};

struct FaultyPair {
  explicit FaultyPair(const std::string& of_a, const std::string& of_b = "",
                      const SideOptions& options = kQuick)
      : a(options), b(options) {
    // Before they are connected: the first packet counts.
    zerohop::softhca::set_faults(a.context, Faults::parse(of_a));
    zerohop::softhca::set_faults(b.context, Faults::parse(of_b));
    connect(a, b);
  }
  std::uint64_t counted(Side& side, Fault fault) const {
    return zerohop::softhca::fault_counts(side.context)->of(fault);
  }
  ibv_wc write(std::uint64_t id, std::size_t nbytes, std::size_t offset = 0) {
    a.rdma(IBV_WR_RDMA_WRITE, id, a.sge(offset, nbytes), b, offset);
    return a.wait();
  }
  Side a;
  Side b;
};

void fill(Side& side, unsigned seed) {
  for (std::size_t i = 0; i < side.options.nbytes; ++i) {
    side.buffer[i] = static_cast<std::byte>(i * 7 + i / 256 + seed);
  }
}

std::uint64_t word_at(const Side& side, std::size_t offset) {
  std::uint64_t word;
  std::memcpy(&word, side.buffer.get() + offset, sizeof word);
  return word;
}

// Writes, reads, atomics and messages in sequence: all arrive, each exactly once.
void expect_exact(FaultyPair& pair, unsigned rounds) {
  constexpr std::size_t kCounter = 60000;
  constexpr std::size_t kResult = 61000;
  for (unsigned round = 0; round < rounds; ++round) {
    fill(pair.a, round);
    std::memset(pair.a.buffer.get() + kCounter, 0, 4000);
    std::memcpy(pair.a.buffer.get() + kCounter, &round, sizeof round);
    REQUIRE(pair.write(1, 20000).status == IBV_WC_SUCCESS);
    REQUIRE(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), 20000) == 0);
    REQUIRE(pair.a.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, pair.a.sge(kResult, 8),
                               pair.b.at(kCounter), pair.b.mr->rkey, 1) == 0);
    REQUIRE(pair.a.wait().status == IBV_WC_SUCCESS);
    REQUIRE(word_at(pair.a, kResult) == round);
    REQUIRE(word_at(pair.b, kCounter) == round + 1);
    pair.b.receive(9, 30000, 300);
    REQUIRE(pair.a.post_message(3, {pair.a.sge(0, 300)}) == 0);
    REQUIRE(pair.a.wait().status == IBV_WC_SUCCESS);
    REQUIRE(pair.b.wait().wr_id == 9);
    REQUIRE(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get() + 30000, 300) == 0);
    pair.a.rdma(IBV_WR_RDMA_READ, 4, pair.a.sge(40000, 5000), pair.b, 5000);
    REQUIRE(pair.a.wait().status == IBV_WC_SUCCESS);
    REQUIRE(std::memcmp(pair.a.buffer.get() + 40000, pair.b.buffer.get() + 5000, 5000) == 0);
  }
}

}  // namespace

// The words themselves: tests/unit/test_faults.py.
TEST_CASE("values that only look like numbers are refused") {
  for (const char* text : {"drop=nan", "drop=0.5x", "delay=-1ms", "fail=-1", "fail_status=SUCCESS",
                           "fail_status=99"}) {
    CAPTURE(std::string(text));
    CHECK_THROWS_AS(Faults::parse(text), std::invalid_argument);
  }
}

TEST_CASE("the dice depend on nothing but what they are asked") {
  using zerohop::softhca::Dice;
  const Dice dice(7, 0);
  unsigned hits = 0;
  for (std::uint32_t i = 0; i < 100000; ++i) {
    const Dice::Throw asked{.what = 1, .kind = 0, .index = i, .part = 0, .attempt = 0};
    hits += dice.hits(0.1, asked);
    REQUIRE(dice.bits(asked) == Dice(7, 0).bits(asked));
    REQUIRE(dice.bits(asked) != Dice(8, 0).bits(asked));
    REQUIRE(dice.bits(asked) != Dice(7, 1).bits(asked));
  }
  CHECK(hits > 9500);
  CHECK(hits < 10500);
}

TEST_CASE("without any fault the checked frames are like others") {
  FaultyPair pair("delay=1ns,delay_rate=1e-9", "");
  expect_exact(pair, 20);
}

TEST_CASE("what is dropped in either direction is sent again") {
  FaultyPair pair("seed=3,drop=0.2", "seed=4,drop=0.2");
  expect_exact(pair, 20);
  CHECK(pair.counted(pair.a, Fault::drop) > 5);
  CHECK(pair.counted(pair.b, Fault::drop) > 5);
}

TEST_CASE("what comes twice counts once") {
  FaultyPair pair("duplicate=1", "duplicate=1");
  expect_exact(pair, 20);
  // The second one of the last pair may still be in flight.
  for (Side* side : {&pair.a, &pair.b}) {
    CHECK(eventually([&] { return pair.counted(*side, Fault::duplicate_found) >= 80; }));
  }
}

TEST_CASE("what is damaged is found out, dropped and sent again") {
  FaultyPair pair("seed=5,corrupt=0.3", "seed=6,corrupt=0.3");
  expect_exact(pair, 30);
  CHECK(pair.counted(pair.a, Fault::corrupt) > 10);
  CHECK(pair.counted(pair.b, Fault::corrupt) > 10);
  CHECK(pair.counted(pair.b, Fault::corrupt_found) == pair.counted(pair.a, Fault::corrupt));
  // The last packets of the other side may still be in flight.
  CHECK(eventually([&] {
    return pair.counted(pair.a, Fault::corrupt_found) == pair.counted(pair.b, Fault::corrupt);
  }));
}

TEST_CASE("all of it together, with waits and receivers that are not ready") {
  const std::string all =
      "seed=11,drop=0.05,duplicate=0.1,corrupt=0.05,rnr=0.2,delay=200us,delay_rate=0.2,slow=100us";
  FaultyPair pair(all, all);
  expect_exact(pair, 30);
  CHECK(pair.counted(pair.b, Fault::rnr) > 2);
  CHECK(pair.counted(pair.a, Fault::delay) > 2);
  CHECK(pair.counted(pair.b, Fault::slow) > 2);
}

TEST_CASE("many requests at once, posted before the first is done") {
  FaultyPair pair("seed=2,drop=0.02,duplicate=0.05,corrupt=0.02",
                  "seed=3,drop=0.02,duplicate=0.05");
  fill(pair.a, 1);
  for (std::uint64_t i = 0; i < 60; ++i) {
    pair.a.rdma(IBV_WR_RDMA_WRITE, i, pair.a.sge(i * 1000, 1000), pair.b, i * 1000);
  }
  for (std::uint64_t i = 0; i < 60; ++i) {
    const ibv_wc completion = pair.a.wait();
    REQUIRE(completion.status == IBV_WC_SUCCESS);
    REQUIRE(completion.wr_id == i);
  }
  CHECK(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), 60000) == 0);
}

TEST_CASE("messages of many packets survive, written, sent and read") {
  const SideOptions large{.nbytes = 1 << 20, .timeout = 8};
  FaultyPair pair("seed=1,drop=0.1,duplicate=0.2,corrupt=0.1,rnr=0.3",
                  "seed=2,drop=0.1,duplicate=0.2,corrupt=0.1,rnr=0.3", large);
  fill(pair.a, 1);
  const std::size_t nbytes = large.nbytes;
  CHECK(pair.write(1, nbytes).status == IBV_WC_SUCCESS);
  CHECK(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), nbytes) == 0);
  fill(pair.a, 2);
  pair.b.receive(9, 0, nbytes);
  REQUIRE(pair.a.post_message(2, {pair.a.sge(0, nbytes)}) == 0);
  CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  CHECK(pair.b.wait().byte_len == nbytes);
  CHECK(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), nbytes) == 0);
  fill(pair.b, 3);
  pair.a.rdma(IBV_WR_RDMA_READ, 3, pair.a.sge(0, nbytes), pair.b);
  CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  CHECK(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), nbytes) == 0);
}

TEST_CASE("what is lost at every try ends with RETRY_EXC_ERR, and has changed nothing") {
  const SideOptions options{.timeout = 8, .retries = 3};
  FaultyPair pair("drop=1", "", options);
  fill(pair.a, 1);
  CHECK(pair.write(1, 100).status == IBV_WC_RETRY_EXC_ERR);
  CHECK(pair.a.state() == IBV_QPS_ERR);
  CHECK(pair.counted(pair.a, Fault::drop) == 4);  // the first try, and three more
  CHECK(pair.b.buffer[0] == std::byte{0});
}

TEST_CASE("a lost answer ends with RETRY_EXC_ERR, though the request was carried out") {
  FaultyPair pair("", "drop=1");
  fill(pair.a, 1);
  CHECK(pair.write(1, 100).status == IBV_WC_RETRY_EXC_ERR);
  CHECK(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), 100) == 0);
}

TEST_CASE("a connection that is cut ends the oldest request, and flushes the others") {
  FaultyPair pair("cut=1", "");
  pair.a.rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, 8), pair.b);
  CHECK(pair.a.wait().status == IBV_WC_RETRY_EXC_ERR);
  CHECK(eventually([&] { return pair.b.state() == IBV_QPS_ERR; }));
}

TEST_CASE("a partial write leaves its first bytes, and nothing else") {
  const SideOptions options{.nbytes = 1 << 16};
  bool some = false;
  for (int seed = 0; seed < 8; ++seed) {
    FaultyPair pair("partial=1,seed=" + std::to_string(seed), "", options);
    fill(pair.a, 1);
    std::memset(pair.b.buffer.get(), 0xee, options.nbytes);
    CHECK(pair.write(1, 50000, 1000).status == IBV_WC_RETRY_EXC_ERR);
    REQUIRE(eventually([&] { return pair.b.state() == IBV_QPS_ERR; }));
    std::size_t placed = 1000;
    while (placed < 51000 && pair.a.buffer[placed] == pair.b.buffer[placed]) ++placed;
    some = some || (placed > 2000 && placed < 51000);
    // A byte or so after the end may be equal by chance.
    for (std::size_t i = 0; i < options.nbytes; ++i) {
      if (i < 1000 || i >= placed) REQUIRE(pair.b.buffer[i] == std::byte{0xee});
    }
    CHECK(placed < 51000);
  }
  CHECK(some);
}

TEST_CASE("a receiver that is never ready ends with RNR_RETRY_EXC_ERR") {
  const SideOptions options{.timeout = 8, .rnr_retries = 2, .rnr_timer = 1};
  FaultyPair pair("", "rnr=1", options);
  pair.b.receive(9, 0, 100);
  REQUIRE(pair.a.post_message(1, {pair.a.sge(0, 100)}) == 0);
  CHECK(pair.a.wait().status == IBV_WC_RNR_RETRY_EXC_ERR);
  CHECK(pair.counted(pair.b, Fault::rnr) == 3);
}

TEST_CASE("the chosen request fails with the chosen status, and was not carried out") {
  FaultyPair pair("fail=3,fail_status=REM_OP_ERR", "");
  fill(pair.a, 1);
  CHECK(pair.write(1, 8, 0).status == IBV_WC_SUCCESS);
  CHECK(pair.write(2, 8, 8).status == IBV_WC_SUCCESS);
  const ibv_wc failed = pair.write(3, 8, 16);
  CHECK(failed.status == IBV_WC_REM_OP_ERR);
  CHECK(failed.wr_id == 3);
  CHECK(word_at(pair.b, 16) == 0);
  CHECK(pair.a.state() == IBV_QPS_ERR);
}

TEST_CASE("a device that is removed says so, ends its queue pairs and makes nothing any more") {
  FaultyPair pair("remove=2", "");
  Side other({}, pair.a.context);
  REQUIRE(other.try_init() == 0);
  CHECK(pair.write(1, 8).status == IBV_WC_SUCCESS);
  const ibv_wc_status last = pair.write(2, 8).status;  // it may have been faster
  CHECK((last == IBV_WC_WR_FLUSH_ERR || last == IBV_WC_SUCCESS));
  CHECK(pair.a.next_event() == IBV_EVENT_DEVICE_FATAL);
  CHECK(pair.a.state() == IBV_QPS_ERR);
  CHECK(other.state() == IBV_QPS_ERR);
  CHECK(pair.write(3, 8).status == IBV_WC_WR_FLUSH_ERR);
  errno = 0;
  CHECK(soft().alloc_pd(pair.a.context) == nullptr);
  CHECK(errno == EIO);
  CHECK(pair.a.try_state(IBV_QPS_RESET) == 0);
  CHECK(pair.a.try_init() == EIO);
  CHECK(eventually([&] { return pair.b.state() == IBV_QPS_ERR; }));
}

TEST_CASE("faults begin and end on a queue pair that is in use") {
  FaultyPair pair("", "");
  expect_exact(pair, 3);
  zerohop::softhca::set_faults(pair.a.context, Faults::parse("seed=1,drop=0.5,duplicate=0.5"));
  REQUIRE(pair.write(1, 100).status == IBV_WC_SUCCESS);
  for (int i = 0; i < 20; ++i) REQUIRE(pair.write(1, 100).status == IBV_WC_SUCCESS);
  const std::uint64_t dropped = pair.counted(pair.a, Fault::drop);
  CHECK(dropped > 0);
  zerohop::softhca::set_faults(pair.a.context, {});
  for (int i = 0; i < 20; ++i) REQUIRE(pair.write(1, 100).status == IBV_WC_SUCCESS);
  CHECK(pair.counted(pair.a, Fault::drop) == dropped);
}

TEST_CASE("a queue pair with faults that was reset and connected again begins anew") {
  FaultyPair pair("seed=1,drop=0.1,duplicate=0.3", "duplicate=0.3");
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 10; ++i) REQUIRE(pair.write(1, 100).status == IBV_WC_SUCCESS);
    REQUIRE(pair.a.try_state(IBV_QPS_RESET) == 0);
    REQUIRE(pair.b.try_state(IBV_QPS_RESET) == 0);
    connect(pair.a, pair.b);
  }
}

TEST_CASE("a queue pair with a packet on hold can be destroyed") {
  FaultyPair pair("delay=10s", "");
  pair.a.rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, 8), pair.b);
  CHECK(pair.a.idle());
}
