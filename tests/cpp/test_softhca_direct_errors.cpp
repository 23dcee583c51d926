// Errors on direct queue pairs of soft0, and the completion entries that report them.
#include <doctest/doctest.h>

#include <random>

#include "direct_side.hpp"

using namespace zerohop::testing;

namespace {

// Posts a good entry, the bad one and another good one with one doorbell.
void expect_refused(DirectPair& pair, const Entry& bad, unsigned syndrome) {
  const std::uint32_t before = pair.a.sends.write(pair.a.write_to(pair.b, 0, 0, 64));
  const std::uint32_t at = pair.a.sends.write(bad);
  const std::uint32_t behind = pair.a.sends.write(pair.a.write_to(pair.b, 0, 64, 64, 0));
  pair.a.sends.ring();
  pair.a.expect(before);
  pair.a.expect_error(at, syndrome);
  pair.a.expect_error(behind, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  CHECK(pair.a.side.state() == IBV_QPS_ERR);
  pair.a.expect_error(pair.a.sends.post(bad), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
}

Entry write_entry(DirectPair& pair) {
  Entry entry(MLX5_OPCODE_RDMA_WRITE, 0);  // errors are reported whether or not it is signaled
  return entry.remote(pair.b.at(0), pair.b.mr->rkey);
}

}  // namespace

TEST_CASE("entries that nobody can carry out end with a local error") {
  const auto refused = [](auto make, unsigned syndrome) {
    DirectPair pair({.sge = 2, .inline_bytes = 16});
    expect_refused(pair, make(pair), syndrome);
  };
  const std::vector<std::byte> data(17);
  const unsigned operation = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
  refused([](DirectPair&) { return Entry(MLX5_OPCODE_UMR); }, operation);
  refused([](DirectPair&) { return Entry(MLX5_OPCODE_RDMA_READ, 0); }, operation);
  refused([&](DirectPair& pair) { return write_entry(pair).inlined(data); }, operation);
  refused(
      [](DirectPair& pair) {
        const ibv_sge part = pair.a.side.sge(0, 8);
        return write_entry(pair).pointer(part).pointer(part).pointer(part);
      },
      operation);
  refused(
      [](DirectPair& pair) {
        Entry entry(MLX5_OPCODE_RDMA_READ, 0);
        const std::byte bytes[4] = {};
        return entry.remote(pair.b.at(0), pair.b.mr->rkey).inlined(bytes);
      },
      operation);
  refused(
      [](DirectPair& pair) {
        Entry entry(MLX5_OPCODE_ATOMIC_FA, 0);
        entry.remote(pair.b.at(0), pair.b.mr->rkey).operands(1, 0);
        return entry.pointer(pair.a.side.sge(0, 4));
      },
      operation);
  refused([](DirectPair& pair) { return write_entry(pair).pointer({pair.a.side.at(0), 0, 1}); },
          MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
}

TEST_CASE("a wrong local key or address is a local protection error") {
  const auto refused = [](auto spoil) {
    DirectPair pair;
    ibv_sge element = pair.a.side.sge(0, 64);
    spoil(element);
    expect_refused(pair, write_entry(pair).pointer(element), MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  };
  refused([](ibv_sge& element) { element.lkey ^= 1; });
  refused([](ibv_sge& element) { element.addr -= 1; });
  refused([](ibv_sge& element) { element.length = 1 << 20; });
}

TEST_CASE("a refusal of the peer is reported by the syndrome of a remote error") {
  DirectPair pair;
  Entry entry(MLX5_OPCODE_RDMA_WRITE, 0);
  entry.remote(pair.b.at(0), pair.b.mr->rkey ^ 1).pointer(pair.a.side.sge(0, 8));
  expect_refused(pair, entry, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  DirectPair other;
  Entry atomic(MLX5_OPCODE_ATOMIC_FA, 0);
  atomic.remote(other.b.at(4), other.b.mr->rkey).operands(1, 0);
  expect_refused(other, atomic.pointer(other.a.side.sge(0, 8)),
                 MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
}

TEST_CASE("an entry with another index or queue pair, or none of its blocks, is refused") {
  const auto refused = [](auto spoil) {
    DirectPair pair;
    auto bytes = pair.a.write_to(pair.b, 0, 0, 64).at(0, pair.a.sends.qp_number);
    auto* control = reinterpret_cast<mlx5_wqe_ctrl_seg*>(bytes.data());
    spoil(*control);
    pair.a.sends.put(0, bytes);
    pair.a.sends.ring(1);
    pair.a.expect_error(0, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
  };
  refused([](mlx5_wqe_ctrl_seg& control) { control.opmod_idx_opcode ^= htobe32(1 << 8); });
  refused([](mlx5_wqe_ctrl_seg& control) { control.qpn_ds ^= htobe32(1 << 8); });
  refused([](mlx5_wqe_ctrl_seg& control) { control.qpn_ds &= ~htobe32(0x3f); });
  refused([](mlx5_wqe_ctrl_seg& control) { control.qpn_ds |= htobe32(0x3f); });
}

TEST_CASE("a record that runs ahead of the ring is an error, not a walk around it") {
  DirectPair pair({.depth = 4, .sge = 1, .inline_bytes = 0});
  REQUIRE(pair.a.sends.qp.sq.wqe_cnt == 4);
  pair.a.sends.put(0, pair.a.write_to(pair.b, 0, 0, 8).at(0, pair.a.sends.qp_number));
  pair.a.sends.ring(5);
  pair.a.expect_error(0, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
  CHECK(pair.a.side.state() == IBV_QPS_ERR);
  CHECK(!pair.a.completions.poll());
}

TEST_CASE("a doorbell counts, not the record; and not that of another queue pair") {
  DirectPair pair;
  const std::uint32_t index = pair.a.sends.write(pair.a.write_to(pair.b, 0, 0, 64));
  std::atomic_ref(pair.a.sends.qp.dbrec[MLX5_SND_DBR]).store(htobe32(1));
  auto& bell = *static_cast<std::uint64_t*>(pair.a.sends.qp.bf.reg);
  const auto is_answered = [&] { return pair.a.sends.answered(); };
  std::atomic_ref(bell).store(std::uint64_t{htobe32((pair.a.sends.qp_number ^ 1) << 8)} << 32 | 1);
  CHECK(eventually(is_answered));
  CHECK(!pair.a.completions.poll());
  pair.a.sends.ring_alone(1);
  pair.a.expect(index);
  pair.a.sends.ring_alone(1);  // nothing new
  CHECK(eventually(is_answered));
  CHECK(!pair.a.completions.poll());
}

TEST_CASE("a completion queue that nobody empties overruns, with events") {
  DirectPair pair({.completions = 4});
  const std::uint32_t places = pair.a.completions.cq.cqe_cnt;
  for (std::uint32_t i = 0; i < places + 2; ++i) {
    pair.a.sends.write(pair.a.write_to(pair.b, 0, 0, 8));
  }
  pair.a.sends.ring();
  CHECK(pair.a.side.next_event() == IBV_EVENT_CQ_ERR);
  CHECK(pair.a.side.next_event() == IBV_EVENT_QP_FATAL);
  CHECK(pair.a.side.state() == IBV_QPS_ERR);
  for (std::uint32_t i = 0; i < places; ++i) pair.a.expect(i);
  CHECK(!pair.a.completions.poll());
}

TEST_CASE("a completion queue whose reader lies about what it took overruns") {
  DirectPair pair({.completions = 4});
  std::atomic_ref(pair.a.completions.cq.dbrec[0]).store(htobe32(77));
  pair.a.sends.post(pair.a.write_to(pair.b, 0, 0, 8));
  CHECK(pair.a.side.next_event() == IBV_EVENT_CQ_ERR);
}

TEST_CASE("entries in progress are flushed when the queue pair goes to the error state") {
  DirectPair pair({.depth = 4, .sge = 1, .inline_bytes = 0});
  Entry entry(MLX5_OPCODE_RDMA_WRITE_IMM, 0);
  entry.remote(pair.b.at(0), pair.b.mr->rkey).pointer(pair.a.side.sge(0, 8));
  for (int i = 0; i < 4; ++i) pair.a.sends.write(entry);  // no receive: they stay outstanding
  pair.a.sends.ring();
  REQUIRE(eventually([&] { return pair.a.sends.answered(); }));
  REQUIRE(pair.a.side.try_state(IBV_QPS_ERR) == 0);
  for (std::uint32_t i = 0; i < 4; ++i) pair.a.expect_error(i, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  CHECK(!pair.a.completions.poll());
}

TEST_CASE("a peer that goes away ends what is outstanding, and what is posted later") {
  DirectPair pair;
  pair.a.expect(pair.a.sends.post(pair.a.write_to(pair.b, 0, 0, 8)));
  Entry entry(MLX5_OPCODE_RDMA_WRITE_IMM, 0);
  entry.remote(pair.b.at(0), pair.b.mr->rkey).pointer(pair.a.side.sge(0, 8));
  const std::uint32_t first = pair.a.sends.write(entry);
  const std::uint32_t second = pair.a.sends.post(entry);
  pair.b.destroy_queue_pair();
  pair.a.expect_error(first, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
  pair.a.expect_error(second, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  pair.a.expect_error(pair.a.sends.post(entry), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
}

TEST_CASE("a peer that went away while nothing was posted is found by the next entry") {
  DirectPair pair;
  pair.a.expect(pair.a.sends.post(pair.a.write_to(pair.b, 0, 0, 8)));
  pair.b.destroy_queue_pair();
  CHECK(eventually([&] { return pair.a.side.state() == IBV_QPS_ERR; }));
  const std::uint32_t index = pair.a.sends.write(pair.a.write_to(pair.b, 0, 0, 8));
  const std::uint32_t second = pair.a.sends.post(pair.a.write_to(pair.b, 0, 0, 8));
  pair.a.expect_error(index, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
  pair.a.expect_error(second, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
}

TEST_CASE("a peer that never comes is given up") {
  DirectSide a({.timeout = 1, .retries = 0});
  Side b;
  a.side.connect(b.address());  // which does not connect to it
  const std::uint32_t index = a.sends.post(a.write_to(b, 0, 0, 8));
  a.expect_error(index, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
}

TEST_CASE("queue pairs are destroyed under a thread that rings, and with entries in progress") {
  for (int round = 0; round < 20; ++round) {
    DirectPair pair;
    for (int i = 0; i < 40; ++i) pair.a.sends.write(pair.a.write_to(pair.b, 0, 0, 60000));
    pair.a.sends.ring();
    if (round % 2 == 0) pair.a.expect(0);
    pair.a.side.destroy_queue_pair();
  }
}

TEST_CASE("random bytes as entries break nothing") {
  std::mt19937_64 random(1);
  const auto any = [&](std::uint64_t below) { return random() % below; };
  constexpr int kRings = 3000;
  DirectSide a({.depth = 16, .completions = 256, .queue_pair_access = 0});
  Side b({.nbytes = 4096});
  const Address of_b = b.address();
  const Address of_a = a.side.address();
  std::uint64_t reported = 0;
  for (int round = 0; round < kRings; ++round) {
    b.connect(of_a);
    a.side.connect(of_b);
    if (round % 10 == 0) {  // sometimes with a connection; few entries complete without one
      REQUIRE(b.post_rdma(IBV_WR_RDMA_WRITE, 1, b.sge(0, 0), 0, 0) == 0);
      REQUIRE(b.wait().status == IBV_WC_SUCCESS);
    }
    a.sends.posted = 0;
    const auto entries = 1 + any(12);
    for (std::uint64_t i = 0; i < entries; ++i) {
      auto bytes =
          a.write_to(b, any(100), any(4000), 1 + any(100)).at(a.sends.posted, a.sends.qp_number);
      bytes.resize(kBlock * (1 + any(3)));
      const std::size_t damage = any(4) == 0 ? bytes.size() : any(6);
      for (std::size_t n = 0; n < damage; ++n) bytes[any(bytes.size())] = std::byte(random());
      a.sends.put(a.sends.posted, bytes);
      a.sends.posted += static_cast<std::uint32_t>(bytes.size() / kBlock);
    }
    a.sends.ring(any(50) == 0 ? static_cast<std::uint32_t>(random()) : a.sends.posted);
    REQUIRE(eventually([&] { return a.sends.answered(); }));
    while (a.completions.poll()) ++reported;
    REQUIRE(a.side.try_state(IBV_QPS_RESET) == 0);
    REQUIRE(b.try_state(IBV_QPS_RESET) == 0);
    while (a.completions.poll()) ++reported;
  }
  CHECK(reported > kRings / 100);
}

TEST_CASE("entries that change while they are read break nothing") {
  DirectSide a({.depth = 16, .completions = 256});
  Side b;
  const Address of_b = b.address();
  const Address of_a = a.side.address();
  std::atomic<bool> stopping{false};
  std::thread scribbler([&] {
    std::mt19937_64 random(2);
    const std::size_t words = a.sends.qp.sq.wqe_cnt * kBlock / 8;
    auto* ring = static_cast<std::uint64_t*>(a.sends.qp.sq.buf);
    while (!stopping.load()) {
      std::atomic_ref(ring[random() % words]).store(random(), std::memory_order_relaxed);
    }
  });
  bool reported = true;
  for (int round = 0; round < 300 && reported; ++round) {
    b.connect(of_a);
    a.side.connect(of_b);
    a.sends.posted = 0;
    for (int i = 0; i < 16; ++i) a.sends.write(a.write_to(b, 0, 0, 64));
    a.sends.ring();
    reported = eventually([&] {
      std::this_thread::yield();
      return a.completions.poll().has_value();
    });
    a.side.try_state(IBV_QPS_RESET);
    b.try_state(IBV_QPS_RESET);
    while (a.completions.poll()) continue;
  }
  stopping = true;
  scribbler.join();
  CHECK(reported);
}
