// Who may share direct queues, where they may lie, and what they cost without doorbells.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <future>

#include "direct_side.hpp"

using namespace zerohop::testing;

namespace {

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

// Several threads post to one ring: each reserves blocks, writes them, and waits until all earlier
// ones are ready; the thread that made entries ready rings for all of them.
class SharedRing {
 public:
  explicit SharedRing(DirectSide& owner) : owner_(owner) {}

  // False if the test waited too long.
  bool post(const Entry& entry) {
    const std::uint32_t blocks = entry.blocks();
    const std::uint32_t index = reserved_.fetch_add(blocks);
    const bool free = eventually([&] {
      drain();
      return index + blocks - done_.load(std::memory_order_acquire) <= owner_.sends.qp.sq.wqe_cnt;
    });
    if (!free) return false;
    owner_.sends.put(index, entry.at(index, owner_.sends.qp_number));
    const bool turn =
        eventually([&] { return ready_.load(std::memory_order_acquire) == index || yield(); });
    if (!turn) return false;
    ready_.store(index + blocks, std::memory_order_release);
    std::lock_guard guard(ring_);
    owner_.sends.ring(ready_.load(std::memory_order_acquire));
    return true;
  }
  bool finish() {
    return eventually([&] {
      drain();
      return done_.load() == reserved_.load();
    });
  }
  int failures = 0;  // guarded by the lock until all threads are gone

 private:
  static bool yield() {
    std::this_thread::yield();
    return false;
  }
  // All entries have one block and complete, in order.
  void drain() {
    std::unique_lock guard(completions_, std::try_to_lock);
    if (!guard) return static_cast<void>(yield());
    while (const auto told = owner_.completions.poll()) {
      const std::uint32_t done = done_.load(std::memory_order_relaxed);
      if (told->opcode != MLX5_CQE_REQ || told->index != (done & 0xffff)) ++failures;
      done_.store(done + 1, std::memory_order_release);
    }
    yield();
  }

  DirectSide& owner_;
  std::atomic<std::uint32_t> reserved_{0};
  std::atomic<std::uint32_t> ready_{0};
  std::atomic<std::uint32_t> done_{0};
  std::mutex ring_;
  std::mutex completions_;
};

}  // namespace

TEST_CASE("threads that share one queue pair by the reserve and ready protocol") {
  constexpr unsigned kThreads = 4;
  constexpr unsigned kEach = 500;
  DirectPair pair({.depth = 32, .sge = 1, .inline_bytes = 0, .completions = 64});
  SharedRing ring(pair.a);
  auto* sums = reinterpret_cast<std::uint64_t*>(pair.b.buffer.get());
  std::vector<std::future<bool>> posters;
  for (unsigned t = 0; t < kThreads; ++t) {
    posters.push_back(std::async(std::launch::async, [&, t] {
      Entry add(MLX5_OPCODE_ATOMIC_FA);
      add.remote(pair.b.at(8 * t), pair.b.mr->rkey).operands(t + 1, 0);
      add.pointer(pair.a.side.sge(8 * t, 8));
      for (unsigned i = 0; i < kEach; ++i) {
        if (!ring.post(add)) return false;
      }
      return true;
    }));
  }
  for (auto& poster : posters) CHECK(poster.get());
  REQUIRE(ring.finish());
  CHECK(ring.failures == 0);
  for (unsigned t = 0; t < kThreads; ++t) CHECK(sums[t] == (t + 1) * kEach);
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
    std::array<unsigned, kPairs> told{};
    for (unsigned i = 0; i < kPairs; ++i) {
      const Completion completion = first.completions.wait();
      CHECK(completion.opcode == MLX5_CQE_REQ);
      CHECK(completion.index == round);
      for (unsigned k = 0; k < kPairs; ++k) {
        if (completion.qp_number == queues[k]->qp_num) ++told[k];
      }
    }
    for (const unsigned times : told) CHECK(times == 1);
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
    REQUIRE(polled.post_rdma(IBV_WR_RDMA_WRITE, round, polled.sge(0, 64), peer.at(0),
                             peer.mr->rkey) == 0);
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
  CHECK(mlx5().place_send_queue(a.qp, ring.data() + 8, 1024) == EINVAL);
  CHECK(mlx5().place_send_queue(a.qp, nullptr, 1024) == EINVAL);
  CHECK(mlx5().place_send_queue(a.qp, ring.data(), 63) == EINVAL);
  CHECK(mlx5().place_send_queue(a.qp, ring.data(), 64) == EINVAL);  // an entry may be larger
  CHECK(mlx5().place_completion_queue(a.cq, entries.data() + 1, 1024) == EINVAL);
  REQUIRE(mlx5().place_send_queue(a.qp, ring.data(), ring.size()) == 0);
  REQUIRE(mlx5().place_completion_queue(a.cq, entries.data(), entries.size()) == 0);
  CHECK(mlx5().place_send_queue(a.qp, ring.data(), ring.size()) == EBUSY);
  CHECK(mlx5().place_completion_queue(a.cq, entries.data(), entries.size()) == EBUSY);
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
  CHECK(mlx5().place_send_queue(huge.qp, ring.data(), ring.size()) == 0);
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
    const ibv_wc told = a.wait();
    CHECK(told.wr_id == index);
    CHECK(told.status == IBV_WC_SUCCESS);
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
