// Many requests of soft0 at once; each operation by itself:
// tests/contract/test_verbs_operations.py.
#include <doctest/doctest.h>

#include <cstring>

#include "soft_side.hpp"

using namespace zerohop::testing;

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
