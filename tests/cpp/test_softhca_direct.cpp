// Direct queue pairs of soft0, driven from memory as a GPU drives those of an mlx5 adapter; where
// they may lie, and what they cost without doorbells. Threads that share one: test_ring_calls.cpp.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <utility>

#include "direct_side.hpp"

namespace zerohop::testing {
namespace {

TEST_CASE("reads and atomics bring their answers") {
  DirectPair pair;
  fill(pair.b, 256, 3000, 9);
  Entry read(MLX5_OPCODE_RDMA_READ);
  read.remote(pair.b.at(256), pair.b.mr->rkey);
  read.pointer(pair.a.side.sge(0, 1000)).pointer(pair.a.side.sge(1000, 2000));
  const std::uint32_t index = pair.a.sends.post(read);
  const Completion completion = pair.a.completions.wait();
  CHECK(completion.index == index);
  CHECK(completion.nbytes == 3000);
  CHECK(is_filled(pair.a.side, 0, 3000, 9));

  auto* counter = reinterpret_cast<std::uint64_t*>(pair.b.buffer.get());
  auto* result = reinterpret_cast<std::uint64_t*>(pair.a.side.buffer.get());
  *counter = 40;
  const auto atomic = [&](unsigned opcode, std::uint64_t swap_add, std::uint64_t compare) {
    Entry entry(opcode);
    entry.remote(pair.b.at(0), pair.b.mr->rkey).operands(swap_add, compare);
    pair.a.expect(pair.a.sends.post(entry.pointer(pair.a.side.sge(0, 8))));
    return *result;
  };
  CHECK(atomic(MLX5_OPCODE_ATOMIC_FA, 2, 0) == 40);
  CHECK(atomic(MLX5_OPCODE_ATOMIC_CS, 1000, 41) == 42);
  CHECK(atomic(MLX5_OPCODE_ATOMIC_CS, 1000, 42) == 42);
  CHECK(atomic(MLX5_OPCODE_ATOMIC_FA, std::uint64_t{0} - 1, 0) == 1000);
  CHECK(*counter == 999);
}

TEST_CASE("immediate data completes a receive of the peer, whose completion queue may be direct") {
  DirectPair pair;
  pair.b.receive(77);
  Entry entry(MLX5_OPCODE_RDMA_WRITE_IMM);
  entry.immediate(htobe32(0xabcd)).remote(pair.b.at(0), pair.b.mr->rkey);
  entry.pointer(pair.a.side.sge(0, 24));
  pair.a.expect(pair.a.sends.post(entry));
  const ibv_wc completion = pair.b.wait();
  CHECK(completion.wr_id == 77);
  CHECK(completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(completion.imm_data == htobe32(0xabcd));

  pair.a.side.receive(5);
  REQUIRE(pair.b.post_rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 1, pair.b.sge(0, 40), pair.a.side.at(0),
                           pair.a.side.mr->rkey, htobe32(99)) == 0);
  const Completion received = pair.a.completions.wait();
  CHECK(received.opcode == MLX5_CQE_RESP_WR_IMM);
  CHECK(received.index == 5);
  CHECK(received.immediate == htobe32(99));
  CHECK(received.nbytes == 40);
  CHECK(received.qp_number == pair.a.side.qp->qp_num);
}

TEST_CASE("data may be inline, in one segment or several, and no bytes at all") {
  DirectPair pair({.inline_bytes = 256});
  fill(pair.a.side, 0, 256, 3);
  const std::span<const std::byte> data(pair.a.side.buffer.get(), 256);
  Entry small(MLX5_OPCODE_RDMA_WRITE);
  small.remote(pair.b.at(0), pair.b.mr->rkey).inlined(data.first(7));
  pair.a.expect(pair.a.sends.post(small));
  CHECK(is_filled(pair.b, 0, 7, 3));
  Entry large(MLX5_OPCODE_RDMA_WRITE);
  large.remote(pair.b.at(0), pair.b.mr->rkey);
  large.inlined(data.first(100)).inlined(data.subspan(100));
  CHECK(large.blocks() > 1);
  pair.a.expect(pair.a.sends.post(large));
  CHECK(is_filled(pair.b, 0, 256, 3));
  Entry empty(MLX5_OPCODE_RDMA_WRITE);
  pair.a.expect(pair.a.sends.post(empty.remote(0, 0)));
}

TEST_CASE("a NOP completes in its turn, whatever it carries") {
  DirectPair pair;
  std::vector<std::uint32_t> indices;
  indices.push_back(pair.a.sends.write(pair.a.write_to(pair.b, 0, 0, 60000)));
  indices.push_back(pair.a.sends.write(Entry(MLX5_OPCODE_NOP)));
  indices.push_back(pair.a.sends.write(
      Entry(MLX5_OPCODE_NOP).operands(1, 2).operands(3, 4).operands(5, 6).operands(7, 8)));
  indices.push_back(pair.a.sends.write(pair.a.write_to(pair.b, 0, 0, 8)));
  pair.a.sends.ring();
  for (const std::uint32_t index : indices) pair.a.expect(index);
}

TEST_CASE("one doorbell posts many entries, and only those that ask for it complete") {
  DirectPair pair;
  fill(pair.a.side, 0, 640, 1);
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < 10; ++i) {
    last = pair.a.sends.write(pair.a.write_to(pair.b, 64 * i, 64 * i, 64,
                                              i == 4 || i == 9 ? kSignaled : std::uint8_t{0}));
  }
  pair.a.sends.ring();
  pair.a.expect(4);
  pair.a.expect(last);
  CHECK(is_filled(pair.b, 0, 640, 1));
  CHECK(!pair.a.completions.poll());
}

TEST_CASE("a fenced write sees what the read before it brought") {
  DirectPair pair;
  for (unsigned round = 0; round < 50; ++round) {
    fill(pair.b, 0, 4000, round);
    Entry read(MLX5_OPCODE_RDMA_READ, 0);
    pair.a.sends.write(
        read.remote(pair.b.at(0), pair.b.mr->rkey).pointer(pair.a.side.sge(0, 4000)));
    pair.a.expect(
        pair.a.sends.post(pair.a.write_to(pair.b, 0, 8000, 4000, kSignaled | MLX5_WQE_CTRL_FENCE)));
    CHECK(is_filled(pair.b, 8000, 4000, round));
  }
}

TEST_CASE("rings turn many times, with entries across their ends") {
  constexpr unsigned kAtOnce = 8;
  DirectPair pair({.depth = kAtOnce, .sge = 6, .completions = 4});
  CHECK(pair.a.sends.qp.sq.wqe_cnt == 32);  // 8 entries of 3 blocks at most
  CHECK(pair.a.completions.cq.cqe_cnt == 4);
  std::array<std::pair<std::size_t, std::uint32_t>, kAtOnce> places;
  while (pair.a.sends.posted < 0x18000) {  // the 16-bit counter wraps, too
    std::uint32_t index = 0;
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned parts = 1 + (pair.a.sends.posted + i) % 6;
      const std::uint32_t round = pair.a.sends.posted;
      Entry entry(MLX5_OPCODE_RDMA_WRITE, i + 1 == kAtOnce ? kSignaled : std::uint8_t{0});
      entry.remote(pair.b.at(64 * i), pair.b.mr->rkey);
      for (unsigned part = 1; part < parts; ++part) entry.pointer(pair.a.side.sge(1024, 8));
      entry.pointer(pair.a.side.sge(64 * i, 8));
      std::memcpy(pair.a.side.buffer.get() + 64 * i, &round, sizeof round);
      index = pair.a.sends.write(entry);
      const std::size_t at = 64 * i + 8 * (parts - 1);
      places[i] = {at, round};
    }
    pair.a.sends.ring();
    const Completion completion = pair.a.completions.wait();
    REQUIRE(completion.opcode == MLX5_CQE_REQ);
    REQUIRE(completion.index == (index & 0xffff));
    for (const auto& [at, round] : places) {
      std::uint32_t arrived = 0;
      std::memcpy(&arrived, pair.b.buffer.get() + at, sizeof arrived);
      REQUIRE(arrived == round);
    }
  }
}

TEST_CASE("a producer that fills the ring is served as places become free") {
  DirectPair pair({.depth = 4, .sge = 1, .inline_bytes = 0, .completions = 64});
  const std::uint32_t blocks = pair.a.sends.qp.sq.wqe_cnt;
  REQUIRE(blocks == 4);
  std::uint32_t done = 0;
  for (std::uint32_t i = 0; i < 5000;) {
    while (i < 5000 && pair.a.sends.posted - done < blocks) {
      pair.a.sends.write(pair.a.write_to(pair.b, 0, 0, 32));
      ++i;
    }
    pair.a.sends.ring();
    pair.a.expect(done++);
    while (pair.a.completions.poll()) ++done;
  }
  while (done < 5000) pair.a.expect(done++);
}

TEST_CASE("what was written before the queue pair is ready to send goes when it is") {
  DirectSide a;
  Side b;
  fill(a.side, 0, 64, 5);
  const Address of_a = a.side.address();
  REQUIRE(a.side.try_init() == 0);
  REQUIRE(a.side.try_ready_to_receive(b.address()) == 0);
  const std::uint32_t index = a.sends.post(a.write_to(b, 0, 0, 64));
  REQUIRE(a.side.try_ready_to_send() == 0);
  b.connect(of_a);
  a.expect(index);
  CHECK(is_filled(b, 0, 64, 5));
}

TEST_CASE("a queue pair that was reset starts at index 0 again") {
  DirectPair pair;
  for (int i = 0; i < 3; ++i) pair.a.expect(pair.a.sends.post(pair.a.write_to(pair.b, 0, 0, 64)));
  REQUIRE(pair.a.side.try_state(IBV_QPS_RESET) == 0);
  REQUIRE(pair.b.try_state(IBV_QPS_RESET) == 0);
  CHECK(pair.a.sends.qp.dbrec[MLX5_SND_DBR] == 0);
  pair.a.sends.posted = 0;
  connect(pair.a.side, pair.b);
  pair.a.expect(pair.a.sends.post(pair.a.write_to(pair.b, 0, 0, 64)));
}

TEST_CASE("two direct queue pairs write to each other") {
  DirectSide a;
  DirectSide b;
  connect(a.side, b.side);
  for (unsigned round = 0; round < 200; ++round) {
    fill(a.side, 0, 512, round);
    fill(b.side, 0, 512, round + 1);
    const std::uint32_t of_a = a.sends.post(a.write_to(b.side, 0, 1024, 512));
    const std::uint32_t of_b = b.sends.post(b.write_to(a.side, 0, 1024, 512));
    a.expect(of_a);
    b.expect(of_b);
    CHECK(is_filled(b.side, 1024, 512, round));
    CHECK(is_filled(a.side, 1024, 512, round + 1));
  }
}

// --- their memory, and what shares it ---

int init(ibv_qp* qp, ibv_cq* cq, mlx5dv_qp* qp_out, mlx5dv_cq* cq_out) {
  mlx5dv_obj objects{};
  objects.qp = {qp, qp_out};
  objects.cq = {cq, cq_out};
  std::uint64_t types = 0;
  if (qp != nullptr) types |= MLX5DV_OBJ_QP;
  if (cq != nullptr) types |= MLX5DV_OBJ_CQ;
  return mlx5().init_obj(&objects, types);
}

std::chrono::microseconds cpu_time() {
  rusage used{};
  REQUIRE(::getrusage(RUSAGE_SELF, &used) == 0);
  const auto of = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

TEST_CASE("several direct queue pairs of one device share a completion queue") {
  constexpr unsigned kPairs = 5;
  DirectSide first({.completions = 512});
  Side& side = first.side;
  std::deque<Side> targets;
  std::vector<ibv_qp*> queues;
  std::deque<SendRing> rings;
  ibv_qp* own = side.qp;
  for (unsigned i = 0; i < kPairs; ++i) {  // Side sets each up as its own
    side.create_queue_pair();
    queues.push_back(side.qp);
    rings.emplace_back(DirectSide::open_sends(side), side.qp->qp_num);
    targets.emplace_back();
    connect(side, targets.back());
  }
  side.qp = own;
  fill(side, 0, 64, 8);
  for (unsigned round = 0; round < 20; ++round) {
    for (unsigned i = 0; i < kPairs; ++i) rings[i].post(first.write_to(targets[i], 0, 0, 64));
    std::array<unsigned, kPairs> reported{};
    for (unsigned i = 0; i < kPairs; ++i) {
      const Completion completion = first.completions.wait();
      CHECK(completion.opcode == MLX5_CQE_REQ);
      CHECK(completion.index == round);
      for (unsigned k = 0; k < kPairs; ++k) {
        if (completion.qp_number == queues[k]->qp_num) ++reported[k];
      }
    }
    for (const unsigned times : reported) CHECK(times == 1);
  }
  for (Side& target : targets) CHECK(is_filled(target, 0, 64, 8));
  for (ibv_qp* qp : queues) CHECK(soft().destroy_qp(qp) == 0);
}

TEST_CASE("a direct queue pair works beside one that is polled, in either order of activity") {
  DirectPair pair;
  Side polled({}, pair.a.side.context);
  Side peer;
  connect(polled, peer);
  for (unsigned round = 0; round < 300; ++round) {
    fill(pair.a.side, 0, 64, round);
    const std::uint32_t index = pair.a.sends.post(pair.a.write_to(pair.b, 0, 0, 64));
    polled.rdma(IBV_WR_RDMA_WRITE, round, polled.sge(0, 64), peer);
    CHECK(polled.wait().status == IBV_WC_SUCCESS);
    pair.a.expect(index);
    CHECK(is_filled(pair.b, 0, 64, round));
  }
}

TEST_CASE("every part of the queues lies in whole pages of its own") {
  DirectSide a;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::array<std::pair<void*, std::size_t>, 5> parts{
      {{a.sends.qp.sq.buf, a.sends.qp.sq.wqe_cnt * std::size_t{a.sends.qp.sq.stride}},
       {a.sends.qp.dbrec, 8},
       {a.sends.qp.bf.reg, 8},
       {a.completions.cq.buf, a.completions.cq.cqe_cnt * std::size_t{a.completions.cq.cqe_size}},
       {a.completions.cq.dbrec, 8}}};
  for (const auto& [address, nbytes] : parts) {
    CHECK(reinterpret_cast<std::uintptr_t>(address) % page == 0);
    for (const auto& [other, other_nbytes] : parts) {
      if (other <= address) continue;
      const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(address) + nbytes;
      CHECK(reinterpret_cast<std::uintptr_t>(other) >= (end + page - 1) / page * page);
    }
  }
  CHECK(a.sends.qp.sq.stride == 64);
  CHECK(a.completions.cq.cqe_size == 64);
  CHECK(a.sends.qp.bf.size == 0);
}

TEST_CASE("queues may lie in memory that the caller gives") {
  alignas(64) static std::array<std::byte, 40 * 64> ring;
  alignas(64) static std::array<std::byte, 16 * 64> entries;
  Side a({.depth = 8});
  Side b;
  CHECK(mlx5().place_send_queue(a.qp, ring.data() + 8, 1024, nullptr) == EINVAL);
  CHECK(mlx5().place_send_queue(a.qp, nullptr, 1024, nullptr) == EINVAL);
  CHECK(mlx5().place_send_queue(a.qp, ring.data(), 63, nullptr) == EINVAL);
  CHECK(mlx5().place_send_queue(a.qp, ring.data(), 64, nullptr) ==
        EINVAL);  // an entry may be larger
  CHECK(mlx5().place_completion_queue(a.cq, entries.data() + 1, 1024, nullptr) == EINVAL);
  REQUIRE(mlx5().place_send_queue(a.qp, ring.data(), ring.size(), nullptr) == 0);
  REQUIRE(mlx5().place_completion_queue(a.cq, entries.data(), entries.size(), nullptr) == 0);
  CHECK(mlx5().place_send_queue(a.qp, ring.data(), ring.size(), nullptr) == EBUSY);
  CHECK(mlx5().place_completion_queue(a.cq, entries.data(), entries.size(), nullptr) == EBUSY);
  SendRing sends(DirectSide::open_sends(a), a.qp->qp_num);
  CompletionRing completions(DirectSide::open_completions(a));
  CHECK(sends.qp.sq.buf == ring.data());
  CHECK(sends.qp.sq.wqe_cnt == 32);
  CHECK(completions.cq.buf == entries.data());
  CHECK(completions.cq.cqe_cnt == 16);
  connect(a, b);
  for (unsigned round = 0; round < 100; ++round) {
    fill(a, 0, 200, round);
    Entry entry(MLX5_OPCODE_RDMA_WRITE);
    sends.post(entry.remote(b.at(0), b.mr->rkey).pointer(a.sge(0, 100)).pointer(a.sge(100, 100)));
    CHECK(completions.wait().opcode == MLX5_CQE_REQ);
    CHECK(is_filled(b, 0, 200, round));
  }
}

TEST_CASE("what is direct is refused to the calls that are not, and what came first counts") {
  DirectPair pair;
  mlx5dv_qp qp{};
  mlx5dv_cq cq{};
  REQUIRE(init(pair.a.side.qp, pair.a.side.cq, &qp, &cq) == 0);  // again: the same
  CHECK(qp.sq.buf == pair.a.sends.qp.sq.buf);
  CHECK(cq.buf == pair.a.completions.cq.buf);
  CHECK(pair.a.side.post_message(1, {}) == EOPNOTSUPP);
  ibv_wc completion;
  CHECK(ibv_poll_cq(pair.a.side.cq, 1, &completion) < 0);
  CHECK(soft().resize_cq(pair.a.side.cq, 1024) != 0);
  mlx5dv_obj objects{};
  CHECK(mlx5().init_obj(&objects, MLX5DV_OBJ_SRQ) == EOPNOTSUPP);

  CHECK(init(pair.b.qp, nullptr, &qp, nullptr) == EINVAL);  // ready to send already
  REQUIRE(pair.b.try_state(IBV_QPS_ERR) == 0);
  pair.b.receive(1);                                       // is flushed
  CHECK(init(nullptr, pair.b.cq, nullptr, &cq) == EBUSY);  // a completion waits in it
  CHECK(pair.b.wait().wr_id == 1);
  CHECK(init(nullptr, pair.b.cq, nullptr, &cq) == 0);

  Side huge({.depth = 1 << 14, .sge = 30});
  CHECK(init(huge.qp, nullptr, &qp, nullptr) == EINVAL);  // more blocks than indices can address
  alignas(64) static std::array<std::byte, 64 * 64> ring;
  CHECK(mlx5().place_send_queue(huge.qp, ring.data(), ring.size(), nullptr) == 0);
  CHECK(init(huge.qp, nullptr, &qp, nullptr) == 0);
  CHECK(qp.sq.wqe_cnt == 64);
}

TEST_CASE("a direct queue pair may complete to a queue that is polled") {
  Side a;
  Side b;
  SendRing sends(DirectSide::open_sends(a), a.qp->qp_num);
  connect(a, b);
  for (unsigned i = 0; i < 3; ++i) {
    Entry entry(MLX5_OPCODE_RDMA_WRITE);
    const std::uint32_t index = sends.post(entry.remote(b.at(0), b.mr->rkey).pointer(a.sge(0, 64)));
    const ibv_wc completion = a.wait();
    CHECK(completion.wr_id == index);
    CHECK(completion.status == IBV_WC_SUCCESS);
  }
}

TEST_CASE("an idle direct queue pair leaves the CPU to others") {
  DirectPair pair({.events = true});
  pair.a.expect(pair.a.sends.post(pair.a.write_to(pair.b, 0, 0, 64)));
  // A wait that ends by itself: nothing makes this descriptor readable.
  int pipes[2];
  REQUIRE(::pipe(pipes) == 0);
  const auto before = cpu_time();
  pollfd never{pipes[0], POLLIN, 0};
  CHECK(::poll(&never, 1, 1000) == 0);
  const auto used = cpu_time() - before;
  MESSAGE("microseconds of CPU in 1 s: ", used.count());
  CHECK(used < std::chrono::milliseconds(600));
  ::close(pipes[0]);
  ::close(pipes[1]);
  // And it still notices a doorbell.
  pair.a.expect(pair.a.sends.post(pair.a.write_to(pair.b, 0, 0, 64)));
}

}  // namespace
}  // namespace zerohop::testing
