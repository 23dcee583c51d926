// Errors on soft0, and the completion status, state and event that report them.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>

#include "soft_side.hpp"

using namespace zerohop::testing;

namespace {

int write_to(Pair& pair, std::uint64_t remote, std::uint32_t rkey, std::size_t nbytes = 16) {
  return pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, nbytes), remote, rkey);
}

void expect_refused(Pair& pair, ibv_wc_status status, ibv_event_type event) {
  CHECK(pair.a.wait().status == status);
  CHECK(pair.a.state() == IBV_QPS_ERR);
  CHECK(eventually([&] { return pair.b.state() == IBV_QPS_ERR; }));
  CHECK(pair.b.next_event() == event);
}

}  // namespace

TEST_CASE("the bytes before, behind and around a region are out of reach") {
  const auto bounds = [](std::int64_t offset, std::size_t nbytes) {
    SideOptions large{.nbytes = 1 << 17};
    Pair pair(large, {.nbytes = 1 << 16});
    REQUIRE(write_to(pair, pair.b.at(0) + static_cast<std::uint64_t>(offset), pair.b.mr->rkey,
                     nbytes) == 0);
    expect_refused(pair, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  };
  bounds(-1, 16);
  bounds((1 << 16) - 15, 16);
  bounds(0, (1 << 16) + 1);
  bounds(1LL << 40, 16);
  bounds(-(1LL << 40), 16);
}

TEST_CASE("access flags of the region and of the queue pair both count") {
  const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                  IBV_ACCESS_REMOTE_ATOMIC;
  const auto refused = [](const SideOptions& target, ibv_wr_opcode opcode) {
    Pair pair({}, target);
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      REQUIRE(pair.a.post_atomic(opcode, 1, pair.a.sge(0, 8), pair.b.at(0), pair.b.mr->rkey, 1) ==
              0);
    } else {
      pair.a.rdma(opcode, 1, pair.a.sge(0, 8), pair.b);
    }
    expect_refused(pair, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  };
  const std::pair<ibv_wr_opcode, int> needs[] = {
      {IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
      {IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ},
      {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC}};
  for (const auto& [opcode, flag] : needs) {
    refused({.memory_access = all & ~flag}, opcode);
    refused({.queue_pair_access = all & ~flag & ~IBV_ACCESS_LOCAL_WRITE}, opcode);
  }
}

// At the other end: tests/contract/test_verbs_operations.py.
TEST_CASE("memory of another protection domain is refused by its owner") {
  Pair pair;
  ibv_pd* other = soft().alloc_pd(pair.b.context);
  std::byte memory[64];
  ibv_mr* foreign = soft().reg_mr(other, memory, sizeof memory, pair.b.options.memory_access);
  REQUIRE(foreign != nullptr);
  REQUIRE(write_to(pair, reinterpret_cast<std::uint64_t>(memory), foreign->rkey) == 0);
  expect_refused(pair, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  REQUIRE(soft().dereg_mr(foreign) == 0);
  REQUIRE(soft().dealloc_pd(other) == 0);
}

TEST_CASE("a receive into memory that may not be written fails on both sides") {
  Pair pair({}, {.memory_access = IBV_ACCESS_REMOTE_READ});
  pair.b.receive(8, 0, 64);
  REQUIRE(pair.a.post_message(1, {pair.a.sge(0, 16)}) == 0);
  CHECK(pair.b.wait().status == IBV_WC_LOC_PROT_ERR);
  CHECK(pair.a.wait().status == IBV_WC_REM_OP_ERR);
}

TEST_CASE("a wrong lkey fails the request, after those before it and before those behind it") {
  for (const std::size_t nbytes : {std::size_t{16}, std::size_t{4096}}) {
    Pair pair;
    ibv_sge bad = pair.a.sge(0, nbytes);
    bad.lkey ^= 0x10;
    REQUIRE(write_to(pair, pair.b.at(0), pair.b.mr->rkey) == 0);
    REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 2, bad, pair.b.at(0), pair.b.mr->rkey) == 0);
    pair.a.rdma(IBV_WR_RDMA_WRITE, 3, pair.a.sge(0, 8), pair.b);
    CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
    const ibv_wc failed = pair.a.wait();
    CHECK(failed.status == IBV_WC_LOC_PROT_ERR);
    CHECK(failed.wr_id == 2);
    const ibv_wc flushed = pair.a.wait();
    CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(flushed.wr_id == 3);
    CHECK(pair.a.state() == IBV_QPS_ERR);
  }
}

TEST_CASE("a read into memory that may not be written fails locally") {
  Pair pair({.memory_access = 0}, {});
  pair.a.rdma(IBV_WR_RDMA_READ, 1, pair.a.sge(0, 8), pair.b);
  CHECK(pair.a.wait().status == IBV_WC_LOC_PROT_ERR);
}

TEST_CASE("more reads than the responder takes are an invalid request") {
  Pair pair({.nbytes = 8 << 20}, {.nbytes = 8 << 20, .reads = 1});
  for (int i = 0; i < 8; ++i) {
    pair.a.rdma(IBV_WR_RDMA_READ, 1, pair.a.sge(0, 8 << 20), pair.b);
  }
  ibv_wc done = pair.a.wait();
  while (done.status == IBV_WC_SUCCESS) done = pair.a.wait();
  CHECK(done.status == IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("after an error everything is flushed, unsignaled work too, and later posts as well") {
  Pair pair;
  pair.a.receive(50);
  pair.b.receive(60);
  ibv_sge element = pair.a.sge(0, 16);
  ibv_send_wr chain[2] = {};  // one post: the second is queued before the first can fail
  chain[0].wr_id = 1;
  chain[0].next = &chain[1];
  chain[0].opcode = IBV_WR_RDMA_WRITE;
  chain[0].sg_list = &element;
  chain[0].num_sge = 1;
  chain[0].wr.rdma.remote_addr = pair.b.at(0);
  chain[1].wr_id = 2;
  chain[1].opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  REQUIRE(ibv_post_send(pair.a.qp, chain, &bad) == 0);
  CHECK(pair.a.wait().status == IBV_WC_REM_ACCESS_ERR);
  const ibv_wc second = pair.a.wait();
  CHECK(second.wr_id == 2);
  CHECK(second.status == IBV_WC_WR_FLUSH_ERR);
  const ibv_wc third = pair.a.wait();
  CHECK(third.wr_id == 50);
  CHECK(third.status == IBV_WC_WR_FLUSH_ERR);
  const ibv_wc other = pair.b.wait();
  CHECK(other.wr_id == 60);
  CHECK(other.status == IBV_WC_WR_FLUSH_ERR);
  REQUIRE(pair.a.post_message(3, {}) == 0);
  CHECK(pair.a.wait().status == IBV_WC_WR_FLUSH_ERR);
  pair.a.receive(51);
  CHECK(pair.a.wait().wr_id == 51);
}

TEST_CASE("RNR: a send waits for its receive, for ever or a number of tries") {
  SUBCASE("for ever") {
    Pair pair;
    std::memset(pair.a.buffer.get(), 0x33, 16);
    REQUIRE(pair.a.post_message(1, {pair.a.sge(0, 16)}) == 0);
    REQUIRE(write_to(pair, pair.b.at(1024), pair.b.mr->rkey) == 0);
    const auto end = Clock::now() + std::chrono::milliseconds(20);
    while (Clock::now() < end) {
      CHECK(pair.a.idle());
      CHECK(pair.b.idle());
    }
    CHECK(pair.b.buffer[1024] == std::byte{0});  // nothing overtakes the send
    pair.b.receive(4, 0, 16);
    CHECK(pair.b.wait().wr_id == 4);
    CHECK(pair.b.buffer[15] == std::byte{0x33});
    CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
    CHECK(pair.a.wait().opcode == IBV_WC_RDMA_WRITE);
    CHECK(pair.b.buffer[1024] == std::byte{0x33});
  }
  SUBCASE("a number of tries") {
    for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM}) {
      Pair pair({.rnr_retries = 3});
      pair.a.rdma(opcode, 1, pair.a.sge(0, 4096), pair.b);
      CHECK(pair.a.wait().status == IBV_WC_RNR_RETRY_EXC_ERR);
      CHECK(pair.a.state() == IBV_QPS_ERR);
    }
  }
}

TEST_CASE("thousands of requests of mixed sizes stay in order") {
  Pair pair({.depth = 256, .completions = 1024, .nbytes = 4 << 20});
  auto* sent = reinterpret_cast<std::uint32_t*>(pair.a.buffer.get());
  auto* got = reinterpret_cast<std::uint32_t*>(pair.b.buffer.get());
  constexpr int kRounds = 40;
  constexpr int kEach = 200;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kEach; ++i) pair.b.receive(static_cast<std::uint64_t>(i));
    for (int i = 0; i < kEach; ++i) {
      const std::size_t words = 1 + static_cast<std::size_t>(i * 37 + round) % 5000;
      const std::size_t at = static_cast<std::size_t>(i) * 5001;
      for (std::size_t w = 0; w < words; ++w)
        sent[at + w] = static_cast<std::uint32_t>(round * 1000 + i);
      REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE_WITH_IMM, static_cast<std::uint64_t>(i),
                               pair.a.sge(at * 4, words * 4), pair.b.at(at * 4), pair.b.mr->rkey,
                               static_cast<std::uint32_t>(i)) == 0);
    }
    for (int i = 0; i < kEach; ++i) {
      const ibv_wc reported = pair.b.wait();
      REQUIRE(reported.imm_data == static_cast<std::uint32_t>(i));
      const std::size_t words = 1 + static_cast<std::size_t>(i * 37 + round) % 5000;
      const std::size_t at = static_cast<std::size_t>(i) * 5001;
      REQUIRE(reported.byte_len == words * 4);
      REQUIRE(std::memcmp(&sent[at], &got[at], words * 4) == 0);
    }
    for (int i = 0; i < kEach; ++i) REQUIRE(pair.a.wait().wr_id == static_cast<std::uint64_t>(i));
  }
}

TEST_CASE("RNR under load: everything arrives once and in order") {
  Pair pair({.depth = 128, .completions = 4096, .nbytes = 8 << 20});
  constexpr int kMessages = 120;
  constexpr std::size_t kEach = 60000;
  for (int i = 0; i < kMessages; ++i) {
    std::memset(&pair.a.buffer[static_cast<std::size_t>(i) * kEach], i + 1, kEach);
    REQUIRE(pair.a.post_message(static_cast<std::uint64_t>(i),
                                {pair.a.sge(static_cast<std::size_t>(i) * kEach, kEach)}) == 0);
  }
  for (int i = 0; i < kMessages; ++i) {
    if (i % 3 == 0) {  // receives come late and in threes
      for (int k = i; k < i + 3; ++k) {
        pair.b.receive(static_cast<std::uint64_t>(k), static_cast<std::size_t>(k) * kEach, kEach);
      }
    }
    const ibv_wc reported = pair.b.wait();
    REQUIRE(reported.status == IBV_WC_SUCCESS);
    REQUIRE(reported.wr_id == static_cast<std::uint64_t>(i));
  }
  CHECK(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), kMessages * kEach) == 0);
  for (int i = 0; i < kMessages; ++i) REQUIRE(pair.a.wait().wr_id == static_cast<std::uint64_t>(i));
}

TEST_CASE("a peer that never connects, or whose device is closed, exhausts the retries") {
  for (const bool closed : {false, true}) {
    Side a({.timeout = 1, .retries = 1});
    auto b = std::make_unique<Side>();
    a.connect(b->address());  // b is not connected to a
    if (closed) b.reset();
    REQUIRE(a.post_message(1, {a.sge(0, 8)}) == 0);
    REQUIRE(a.post_message(2, {a.sge(0, 8)}) == 0);
    CHECK(a.wait().status == IBV_WC_RETRY_EXC_ERR);
    CHECK(a.wait().status == IBV_WC_WR_FLUSH_ERR);
    CHECK(a.state() == IBV_QPS_ERR);
  }
}

TEST_CASE("a destroyed or failed queue pair is noticed at once by its peer") {
  for (const bool destroyed : {true, false}) {
    Pair pair;
    pair.a.receive(9);
    REQUIRE(write_to(pair, pair.b.at(0), pair.b.mr->rkey) == 0);
    REQUIRE(pair.a.wait().status == IBV_WC_SUCCESS);
    if (destroyed) {
      pair.b.destroy_queue_pair();
    } else {
      REQUIRE(pair.b.try_state(IBV_QPS_ERR) == 0);
    }
    const auto start = Clock::now();
    const ibv_wc reported = pair.a.wait();
    CHECK(reported.wr_id == 9);
    CHECK(reported.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(Clock::now() - start < std::chrono::seconds(1));
    CHECK(pair.a.state() == IBV_QPS_ERR);
  }
}

TEST_CASE("an outstanding request fails when the peer goes away, the rest is flushed") {
  Pair pair;
  REQUIRE(pair.a.post_message(1, {pair.a.sge(0, 8)}) == 0);  // no receive: it stays outstanding
  REQUIRE(pair.a.post_message(2, {pair.a.sge(0, 8)}) == 0);
  CHECK(pair.a.idle());
  pair.b.destroy_queue_pair();
  const ibv_wc first = pair.a.wait();
  CHECK(first.status == IBV_WC_RETRY_EXC_ERR);
  CHECK(first.wr_id == 1);
  CHECK(pair.a.wait().status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("an overrun completion queue raises an event and fails its queue pair") {
  Pair pair({.completions = 4}, {});
  for (int i = 0; i < 6; ++i) REQUIRE(write_to(pair, pair.b.at(0), pair.b.mr->rkey) == 0);
  CHECK(pair.a.next_event() == IBV_EVENT_CQ_ERR);
  CHECK(pair.a.next_event() == IBV_EVENT_QP_FATAL);
  for (int i = 0; i < 4; ++i) CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  ibv_wc completion;
  CHECK(ibv_poll_cq(pair.a.cq, 1, &completion) < 0);
}

TEST_CASE("posts that can never work are refused on the spot and named") {
  Pair pair({.depth = 2, .sge = 2, .inline_bytes = 16});
  const std::uint32_t rkey = pair.b.mr->rkey;
  const ibv_sge element = pair.a.sge(0, 8);
  CHECK(pair.a.post_message(1, {element, element, element}) == EINVAL);
  CHECK(pair.a.post(IBV_WR_SEND, 1, {pair.a.sge(0, 17)},
                    [](ibv_send_wr& work) { work.send_flags |= IBV_SEND_INLINE; }) == EINVAL);
  CHECK(pair.a.post(IBV_WR_RDMA_READ, 1, {element},
                    [](ibv_send_wr& work) { work.send_flags |= IBV_SEND_INLINE; }) == EINVAL);
  CHECK(pair.a.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, pair.a.sge(0, 4), pair.b.at(0), rkey,
                           1) == EINVAL);
  CHECK(pair.a.post(IBV_WR_LOCAL_INV, 1, {}, [](ibv_send_wr&) {}) == EOPNOTSUPP);
  CHECK(pair.a.try_receive(1, {element, element, element}) == EINVAL);
  pair.a.receive(1);
  pair.a.receive(2);
  CHECK(pair.a.try_receive(3, {}) == ENOMEM);

  ibv_sge elements = element;
  ibv_send_wr chain[4] = {};
  for (int i = 0; i < 4; ++i) {
    chain[i].next = i < 3 ? &chain[i + 1] : nullptr;
    chain[i].opcode = IBV_WR_SEND;
    chain[i].sg_list = &elements;
    chain[i].num_sge = 1;
    chain[i].send_flags = IBV_SEND_SIGNALED;
  }
  ibv_send_wr* bad = nullptr;
  CHECK(ibv_post_send(pair.a.qp, chain, &bad) == ENOMEM);
  CHECK(bad == &chain[2]);
  for (int i = 0; i < 2; ++i) pair.b.receive(5, 0, 8);
  for (int i = 0; i < 2; ++i) CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
}
