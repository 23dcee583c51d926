// Bytes through soft0: every operation, sizes from nothing to many segments, scatter/gather lists.
#include <doctest/doctest.h>

#include <numeric>

#include "soft_side.hpp"

using namespace zerohop::testing;

namespace {

void fill(Side& side, std::size_t nbytes, unsigned seed) {
  for (std::size_t i = 0; i < nbytes; ++i) {
    side.buffer[i] = static_cast<std::byte>((i * 31 + i / 251 + seed) & 0xff);
  }
}

constexpr std::size_t kSizes[] = {0,    1,    7,     8,       255,     256,           257,
                                  4096, 8191, 65536, 1000003, 1 << 20, (1 << 20) + 1, 5000000};

SideOptions big() { return {.nbytes = 6 << 20}; }

}  // namespace

TEST_CASE("a write places its bytes and completes") {
  Pair pair(big());
  for (const std::size_t nbytes : kSizes) {
    CAPTURE(nbytes);
    fill(pair.a, nbytes, static_cast<unsigned>(nbytes));
    std::memset(pair.b.buffer.get(), 0, nbytes + 1);
    REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, nbytes, pair.a.sge(0, nbytes), pair.b.at(0),
                             pair.b.mr->rkey) == 0);
    const ibv_wc done = pair.a.wait();
    CHECK(done.status == IBV_WC_SUCCESS);
    CHECK(done.opcode == IBV_WC_RDMA_WRITE);
    CHECK(done.wr_id == nbytes);
    CHECK(done.qp_num == pair.a.qp->qp_num);
    CHECK(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), nbytes) == 0);
    CHECK(pair.b.buffer[nbytes] == std::byte{0});
  }
}

TEST_CASE("a write with immediate notifies the receiver after its bytes are there") {
  Pair pair(big());
  for (const std::size_t nbytes : kSizes) {
    CAPTURE(nbytes);
    fill(pair.a, nbytes, 3 + static_cast<unsigned>(nbytes));
    pair.b.receive(77);
    REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 5, pair.a.sge(0, nbytes), pair.b.at(0),
                             pair.b.mr->rkey, 0xabcd0123) == 0);
    const ibv_wc told = pair.b.wait();
    CHECK(told.status == IBV_WC_SUCCESS);
    CHECK(told.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK(told.wr_id == 77);
    CHECK(told.byte_len == nbytes);
    CHECK((told.wc_flags & IBV_WC_WITH_IMM) != 0);
    CHECK(told.imm_data == 0xabcd0123);
    CHECK(told.qp_num == pair.b.qp->qp_num);
    CHECK(told.src_qp == pair.a.qp->qp_num);
    CHECK(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), nbytes) == 0);
    CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  }
}

TEST_CASE("a send fills the receive that was posted first") {
  Pair pair(big());
  for (const std::size_t nbytes : kSizes) {
    CAPTURE(nbytes);
    fill(pair.a, nbytes, 9 + static_cast<unsigned>(nbytes));
    pair.b.receive(1, 0, 5500000);
    REQUIRE(pair.a.post_message(2, {pair.a.sge(0, nbytes)}) == 0);
    const ibv_wc told = pair.b.wait();
    CHECK(told.opcode == IBV_WC_RECV);
    CHECK(told.byte_len == nbytes);
    CHECK((told.wc_flags & IBV_WC_WITH_IMM) == 0);
    CHECK(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), nbytes) == 0);
    CHECK(pair.a.wait().opcode == IBV_WC_SEND);
  }
}

TEST_CASE("a read fetches the remote bytes") {
  Pair pair(big());
  for (const std::size_t nbytes : kSizes) {
    CAPTURE(nbytes);
    fill(pair.b, nbytes, 21 + static_cast<unsigned>(nbytes));
    REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_READ, 4, pair.a.sge(0, nbytes), pair.b.at(0),
                             pair.b.mr->rkey) == 0);
    const ibv_wc done = pair.a.wait();
    CHECK(done.status == IBV_WC_SUCCESS);
    CHECK(done.opcode == IBV_WC_RDMA_READ);
    CHECK(done.byte_len == nbytes);
    CHECK(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), nbytes) == 0);
  }
}

TEST_CASE("atomics return the old value and act on 64 bits") {
  Pair pair;
  auto* counter = reinterpret_cast<std::uint64_t*>(pair.b.buffer.get() + 64);
  auto* old = reinterpret_cast<std::uint64_t*>(pair.a.buffer.get());
  *counter = 0xfffffffffffffff0;
  REQUIRE(pair.a.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, pair.a.sge(0, 8), pair.b.at(64),
                             pair.b.mr->rkey, 0x20) == 0);
  CHECK(pair.a.wait().opcode == IBV_WC_FETCH_ADD);
  CHECK(*old == 0xfffffffffffffff0);
  CHECK(*counter == 0x10);
  REQUIRE(pair.a.post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 2, pair.a.sge(0, 8), pair.b.at(64),
                             pair.b.mr->rkey, 0x11, 99) == 0);
  CHECK(pair.a.wait().opcode == IBV_WC_COMP_SWAP);
  CHECK(*old == 0x10);
  CHECK(*counter == 0x10);
  REQUIRE(pair.a.post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 3, pair.a.sge(0, 8), pair.b.at(64),
                             pair.b.mr->rkey, 0x10, 99) == 0);
  CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  CHECK(*old == 0x10);
  CHECK(*counter == 99);
}

TEST_CASE("lists are gathered at the source and scattered at the destination") {
  Pair pair({.nbytes = 1 << 20});
  fill(pair.a, 1 << 20, 1);
  for (const std::size_t part : {std::size_t{5}, std::size_t{100}, std::size_t{70000}}) {
    CAPTURE(part);
    const std::vector<ibv_sge> from = {pair.a.sge(1, part), pair.a.sge(200001, part),
                                       pair.a.sge(400003, part)};
    REQUIRE(pair.b.try_receive(1, {pair.b.sge(500000, 2 * part), pair.b.sge(0, 3 * part)}) == 0);
    REQUIRE(pair.a.post_message(2, from) == 0);
    CHECK(pair.b.wait().byte_len == 3 * part);
    CHECK(std::memcmp(&pair.b.buffer[500000], &pair.a.buffer[1], part) == 0);
    CHECK(std::memcmp(&pair.b.buffer[500000 + part], &pair.a.buffer[200001], part) == 0);
    CHECK(std::memcmp(&pair.b.buffer[0], &pair.a.buffer[400003], part) == 0);
    CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  }
}

TEST_CASE("inline data may be reused as soon as the post returns") {
  Pair pair({.inline_bytes = 512});
  std::byte text[512];
  for (const std::size_t nbytes :
       {std::size_t{1}, std::size_t{64}, std::size_t{300}, std::size_t{512}}) {
    CAPTURE(nbytes);
    std::memset(text, 0x5a, sizeof text);
    const ibv_sge unregistered{reinterpret_cast<std::uint64_t>(text),
                               static_cast<std::uint32_t>(nbytes), 0};
    REQUIRE(pair.a.post(IBV_WR_RDMA_WRITE, 1, {unregistered}, [&](ibv_send_wr& work) {
      work.send_flags |= IBV_SEND_INLINE;
      work.wr.rdma.remote_addr = pair.b.at(0);
      work.wr.rdma.rkey = pair.b.mr->rkey;
    }) == 0);
    std::memset(text, 0, sizeof text);
    CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
    CHECK(pair.b.buffer[nbytes - 1] == std::byte{0x5a});
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
      const ibv_wc told = pair.b.wait();
      REQUIRE(told.imm_data == static_cast<std::uint32_t>(i));
      const std::size_t words = 1 + static_cast<std::size_t>(i * 37 + round) % 5000;
      const std::size_t at = static_cast<std::size_t>(i) * 5001;
      REQUIRE(told.byte_len == words * 4);
      REQUIRE(std::memcmp(&sent[at], &got[at], words * 4) == 0);
    }
    for (int i = 0; i < kEach; ++i) REQUIRE(pair.a.wait().wr_id == static_cast<std::uint64_t>(i));
  }
}
