// Memory on soft0 that the CPU cannot access, a fake GPU's; and work whose copies fail.
#include <doctest/doctest.h>

#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "gpu_memory.hpp"
#include "reported.hpp"

namespace zerohop::testing {
namespace {

constexpr std::size_t kNbytes = std::size_t{1} << 16;
constexpr std::size_t kSizes[] = {0, 1, 8, 255, 256, 257, 4095, 4096, 4097, 40000};

struct Fixture {
  FakeCuda cuda;
  std::shared_ptr<gpu::Copier> copier = make_copier(cuda);
  Pair pair;
  GpuMemory of_a{cuda, copier, pair.a, kNbytes};
  GpuMemory of_b{cuda, copier, pair.b, kNbytes};

  ~Fixture() {  // no thread keeps a context current
    CHECK(eventually([this] { return cuda.depth == 0; }));
  }
  void fill(std::size_t offset, const std::vector<std::byte>& bytes) {
    std::ranges::copy(bytes, pair.a.buffer.get() + offset);
  }
  std::vector<std::byte> host(const Side& side, std::size_t offset, std::size_t nbytes) const {
    return {side.buffer.get() + offset, side.buffer.get() + offset + nbytes};
  }
  ibv_wc_status move(ibv_wr_opcode opcode, ibv_sge local, std::uint64_t remote, std::uint32_t key) {
    REQUIRE(pair.a.post_rdma(opcode, 1, local, remote, key) == 0);
    return pair.a.wait().status;
  }
};

TEST_CASE_FIXTURE(Fixture, "a write places exactly its bytes, whichever side lies on a GPU") {
  unsigned seed = 0;
  for (const std::size_t nbytes : kSizes) {
    CAPTURE(nbytes);
    const auto bytes = pattern(nbytes, ++seed);
    const std::size_t from = 3 + seed;
    const std::size_t to = 4093 + 7 * seed;
    of_a.put(from, bytes);
    of_b.put(0, std::vector<std::byte>(kNbytes, std::byte{0xEE}));
    CHECK(move(IBV_WR_RDMA_WRITE, of_a.sge(from, nbytes), of_b.at(to), of_b.key()) ==
          IBV_WC_SUCCESS);
    CHECK(of_b.holds_only(to, bytes));
    CHECK(move(IBV_WR_RDMA_WRITE, of_a.sge(from, nbytes), pair.b.at(to), pair.b.mr->rkey) ==
          IBV_WC_SUCCESS);
    CHECK(host(pair.b, to, nbytes) == bytes);
    const auto others = pattern(nbytes, 1000 + seed);
    fill(from, others);
    CHECK(move(IBV_WR_RDMA_WRITE, pair.a.sge(from, nbytes), of_b.at(to), of_b.key()) ==
          IBV_WC_SUCCESS);
    CHECK(of_b.holds_only(to, others));
  }
}

TEST_CASE_FIXTURE(Fixture, "a read is done when its bytes are in the GPU's memory") {
  unsigned seed = 50;
  for (const std::size_t nbytes : kSizes) {
    CAPTURE(nbytes);
    const auto bytes = pattern(nbytes, ++seed);
    of_b.put(17, bytes);
    of_a.put(0, std::vector<std::byte>(kNbytes, std::byte{0xEE}));
    CHECK(move(IBV_WR_RDMA_READ, of_a.sge(seed, nbytes), of_b.at(17), of_b.key()) ==
          IBV_WC_SUCCESS);
    CHECK(of_a.holds_only(seed, bytes));
    CHECK(move(IBV_WR_RDMA_READ, pair.a.sge(seed, nbytes), of_b.at(17), of_b.key()) ==
          IBV_WC_SUCCESS);
    CHECK(host(pair.a, seed, nbytes) == bytes);
  }
}

TEST_CASE_FIXTURE(Fixture, "messages gather from and scatter to hosts and GPUs alike") {
  const auto bytes = pattern(20000, 7);
  const auto part = [&](std::size_t begin, std::size_t end) {
    return std::vector<std::byte>(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                                  bytes.begin() + static_cast<std::ptrdiff_t>(end));
  };
  fill(100, part(0, 5000));
  of_a.put(3, part(5000, 14000));
  fill(9000, part(14000, 14001));
  of_a.put(30000, part(14001, 20000));
  REQUIRE(pair.b.try_receive(5, {of_b.sge(9, 4000), pair.b.sge(1, 3000), of_b.sge(5000, 13000),
                                 pair.b.sge(20000, 30000)}) == 0);
  REQUIRE(pair.a.post_message(6, {pair.a.sge(100, 5000), of_a.sge(3, 9000), pair.a.sge(9000, 1),
                                  of_a.sge(30000, 5999)}) == 0);
  const ibv_wc received = pair.b.wait();
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.byte_len == 20000);
  CHECK(of_b.get(9, 4000) == part(0, 4000));
  CHECK(host(pair.b, 1, 3000) == part(4000, 7000));
  CHECK(of_b.get(5000, 13000) == part(7000, 20000));
  CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
}

TEST_CASE_FIXTURE(Fixture, "a notified peer finds all data that was written before") {
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds; ++round) {
    const auto bytes = pattern(24 * 500, static_cast<unsigned>(round));
    of_a.put(0, bytes);
    pair.b.receive(1);
    for (std::size_t i = 0; i < 24; ++i) {
      const bool last = i == 23;
      REQUIRE(pair.a.post_rdma(last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, i,
                               of_a.sge(i * 500, 500), of_b.at(i * 700), of_b.key()) == 0);
    }
    CHECK(pair.b.wait().opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    for (std::size_t i = 0; i < 24; ++i) {  // at once, before the writer sees the completion
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(i * 500);
      CHECK(of_b.get(i * 700, 500) == std::vector<std::byte>(begin, begin + 500));
    }
    for (int i = 0; i < 24; ++i) CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  }
}

TEST_CASE_FIXTURE(Fixture, "the source may change when the write is done, or a later one") {
  for (unsigned round = 0; round < 40; ++round) {
    const auto bytes = pattern(9000, round);
    of_a.put(0, bytes);
    CHECK(move(IBV_WR_RDMA_WRITE, of_a.sge(0, 9000), of_b.at(1), of_b.key()) == IBV_WC_SUCCESS);
    of_a.put(0, pattern(9000, round + 500));
    CHECK(of_b.get(1, 9000) == bytes);
  }
}

TEST_CASE_FIXTURE(Fixture, "atomics on a GPU's word are atomic among queue pairs") {
  of_b.put(64, std::vector<std::byte>(8));
  SideOptions options;
  Side c(options, pair.a.context);
  Side d(options, pair.b.context);
  connect(c, d);
  // The key belongs to the protection domain of b: d needs its own for the same memory.
  ibv_mr* same = register_on_gpu(d, of_b.at(0), kNbytes, copier);
  REQUIRE(same != nullptr);
  constexpr std::uint64_t kEach = 50;
  const auto add = [](Side& side, std::uint64_t word, std::uint32_t key) {
    for (std::uint64_t i = 0; i < kEach; ++i) {
      REQUIRE(side.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, i, side.sge(0, 8), word, key, 3) == 0);
      REQUIRE(side.wait().status == IBV_WC_SUCCESS);
    }
  };
  std::thread other([&] { add(c, of_b.at(64), same->rkey); });
  add(pair.a, of_b.at(64), of_b.key());
  other.join();
  std::uint64_t value = 0;
  std::memcpy(&value, of_b.get(64, 8).data(), sizeof value);
  CHECK(value == 6 * kEach);
  // The old value may go to a GPU, too.
  REQUIRE(pair.a.post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 1, of_a.sge(40, 8), of_b.at(64), of_b.key(),
                             value, 77) == 0);
  CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  std::uint64_t old = 0;
  std::memcpy(&old, of_a.get(40, 8).data(), sizeof old);
  CHECK(old == 6 * kEach);
  std::memcpy(&value, of_b.get(64, 8).data(), sizeof value);
  CHECK(value == 77);
  CHECK(soft().dereg_mr(same) == 0);
}

TEST_CASE("keys, bounds and rights hold for a GPU's memory as for the host's") {
  struct Case {
    std::size_t offset;
    std::size_t nbytes;
    int access;
    ibv_wr_opcode opcode;
  };
  const int all = SideOptions{}.memory_access;
  for (const Case& bad : {Case{kNbytes - 99, 100, all, IBV_WR_RDMA_WRITE},
                          Case{kNbytes - 99, 100, all, IBV_WR_RDMA_READ},
                          Case{0, 100, IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_WRITE},
                          Case{0, 100, IBV_ACCESS_LOCAL_WRITE, IBV_WR_RDMA_READ}}) {
    SideOptions options;
    options.memory_access = bad.access;
    FakeCuda cuda;
    const auto copier = make_copier(cuda);
    Pair pair(SideOptions{}, options);
    GpuMemory memory(cuda, copier, pair.b, kNbytes);
    REQUIRE(pair.a.post_rdma(bad.opcode, 1, pair.a.sge(0, bad.nbytes), memory.at(bad.offset),
                             memory.key()) == 0);
    CHECK(pair.a.wait().status == IBV_WC_REM_ACCESS_ERR);
    CHECK(memory.holds_only(0, {}));
  }
  FakeCuda cuda;
  const auto copier = make_copier(cuda);
  Pair pair;
  GpuMemory memory(cuda, copier, pair.a, kNbytes);
  ibv_sge beyond = memory.sge(kNbytes - 10, 11);
  REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, beyond, pair.b.at(0), pair.b.mr->rkey) == 0);
  CHECK(pair.a.wait().status == IBV_WC_LOC_PROT_ERR);
  CHECK(soft().reg_copied_mr(pair.a.pd, memory.at(0), 0, 0, copier) == nullptr);
  CHECK(soft().reg_copied_mr(pair.a.pd, memory.at(0), 10, 0, nullptr) == nullptr);
  CHECK(soft().reg_copied_mr(pair.a.pd, memory.at(0), 10, IBV_ACCESS_REMOTE_WRITE, copier) ==
        nullptr);
}

TEST_CASE("nothing of a GPU's memory changes after its key is gone") {
  for (unsigned round = 0; round < 12; ++round) {
    FakeCuda cuda;
    const auto copier = make_copier(cuda);
    Pair pair;
    GpuMemory from(cuda, copier, pair.a, 8 << 20);
    GpuMemory to(cuda, copier, pair.b, 8 << 20);
    const auto sent = pattern(8 << 20, round);
    from.put(0, sent);
    std::thread other([&] {  // the owner of the target
      REQUIRE(eventually([&] { return to.get(round * 1000, 1)[0] != std::byte{0xEE}; }));
      to.deregister();
    });
    REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, from.sge(0, 8 << 20), to.at(0), to.key()) == 0);
    other.join();
    const auto before = to.get(0, 8 << 20);
    const ibv_wc_status status = pair.a.wait().status;
    CHECK((status == IBV_WC_SUCCESS || status == IBV_WC_REM_ACCESS_ERR ||
           status == IBV_WC_REM_OP_ERR));
    CHECK(to.get(0, 8 << 20) == before);
    if (status == IBV_WC_SUCCESS) CHECK(before == sent);
  }
}

TEST_CASE("memory of two GPUs in one list, and more queue pairs than lanes") {
  FakeCuda cuda;
  const auto one = make_copier(cuda);
  const auto other = make_copier(cuda, 8192);
  constexpr int kPairs = 6;
  static_assert(kPairs > gpu::Copier::kLanes);
  std::vector<std::thread> threads;
  for (unsigned n = 0; n < kPairs; ++n) {
    threads.emplace_back([&, n] {
      Pair pair;
      GpuMemory a1(cuda, one, pair.a, kNbytes), a2(cuda, other, pair.a, kNbytes);
      GpuMemory b1(cuda, one, pair.b, kNbytes), b2(cuda, other, pair.b, kNbytes);
      const auto bytes = pattern(30000, n);
      a1.put(0, {bytes.begin(), bytes.begin() + 10000});
      a2.put(0, {bytes.begin() + 10000, bytes.end()});
      for (int round = 0; round < 10; ++round) {
        REQUIRE(pair.b.try_receive(1, {b2.sge(5, 15000), b1.sge(7, 15000)}) == 0);
        REQUIRE(pair.a.post_message(1, {a1.sge(0, 5000), a2.sge(0, 20000), a1.sge(5000, 5000)}) ==
                0);
        REQUIRE(pair.b.wait().status == IBV_WC_SUCCESS);
        REQUIRE(pair.a.wait().status == IBV_WC_SUCCESS);
        auto wanted = std::vector<std::byte>(bytes.begin(), bytes.begin() + 5000);
        wanted.insert(wanted.end(), bytes.begin() + 10000, bytes.end());
        wanted.insert(wanted.end(), bytes.begin() + 5000, bytes.begin() + 10000);
        REQUIRE(b2.get(5, 15000) == std::vector<std::byte>(wanted.begin(), wanted.begin() + 15000));
        REQUIRE(b1.get(7, 15000) == std::vector<std::byte>(wanted.begin() + 15000, wanted.end()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(cuda.depth == 0);
}

TEST_CASE("the lanes of a copier are given back, whichever call fails during set-up") {
  FakeCuda cuda;
  for (int n = 0;; ++n) {  // 0: none
    cuda.calls = 0;
    cuda.fail_at = n;
    bool made = false;
    try {
      const auto copier = make_copier(cuda);
      cuda.fail_at = 0;  // failures during teardown leak, as after a lost context
      made = true;
    } catch (const CudaError&) {
    }
    CHECK(cuda.copies.pinned() + cuda.copies.streams() + cuda.copies.events() == 0);
    CHECK(cuda.retained + cuda.depth == 0);
    if (made && n > 0) break;
  }
}

// --- copies that fail ---

constexpr std::size_t kFew = 20000;

// One transfer in which the n-th CUDA call fails. Returns whether one did.
template <typename Move>
bool fails_at(int n, Move move) {
  FakeCuda cuda;
  const auto copier = make_copier(cuda);
  Pair pair;
  GpuMemory of_a(cuda, copier, pair.a, kFew);
  GpuMemory of_b(cuda, copier, pair.b, kFew);
  const auto bytes = pattern(kFew, static_cast<unsigned>(n));
  of_a.put(0, bytes);
  cuda.calls = 0;
  cuda.fail_at = n;
  move(pair, of_a, of_b, bytes);
  const bool failed = cuda.calls >= n;
  cuda.fail_at = 0;
  CHECK(eventually([&] { return cuda.depth == 0; }));
  return failed;
}

// Until no call is left that could fail.
template <typename Move>
void fail_each_call(Move move) {
  int n = 0;
  while (fails_at(++n, move)) REQUIRE(n < 1000);
}

void check_completion(const ibv_wc& completion, bool done) {
  CAPTURE(completion.status);
  if (completion.status == IBV_WC_SUCCESS) CHECK(done);
  if (completion.status == IBV_WC_GENERAL_ERR) CHECK(completion.vendor_err == 999);
  CHECK((completion.status == IBV_WC_SUCCESS || completion.status == IBV_WC_GENERAL_ERR ||
         completion.status == IBV_WC_REM_OP_ERR || completion.status == IBV_WC_RETRY_EXC_ERR));
}

TEST_CASE("a write of which any copy fails is never called done") {
  const Reports reports;
  int refused = 0, own = 0;
  fail_each_call([&](Pair& pair, GpuMemory& of_a, GpuMemory& of_b, const auto& bytes) {
    REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, of_a.sge(0, kFew), of_b.at(0), of_b.key()) == 0);
    const ibv_wc completion = pair.a.wait();
    check_completion(completion, of_b.get(0, kFew) == bytes);
    refused += completion.status == IBV_WC_REM_OP_ERR;
    own += completion.status == IBV_WC_GENERAL_ERR;
  });
  CHECK(refused > 0);          // copies at the target
  CHECK(own > 0);              // copies at the source
  CHECK(reports.count() > 0);  // the target's owner is notified
}

TEST_CASE("of small writes only those in front of a failed copy are called done") {
  const Reports reports;
  constexpr std::size_t kWrites = 40;
  constexpr std::size_t kEach = 300;
  bool failed = false;
  fail_each_call([&](Pair& pair, GpuMemory&, GpuMemory& of_b, const auto& bytes) {
    std::ranges::copy(bytes, pair.a.buffer.get());
    for (std::size_t i = 0; i < kWrites; ++i) {
      REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, i, pair.a.sge(i * kEach, kEach),
                               of_b.at(i * kEach), of_b.key()) == 0);
    }
    for (std::size_t i = 0; i < kWrites; ++i) {
      const ibv_wc completion = pair.a.wait();
      CHECK(completion.wr_id == i);
      failed = failed || completion.status == IBV_WC_REM_OP_ERR;
      if (completion.status != IBV_WC_SUCCESS) continue;
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(i * kEach);
      CHECK(of_b.get(i * kEach, kEach) == std::vector<std::byte>(begin, begin + kEach));
    }
  });
  CHECK(failed);
}

TEST_CASE("a read of which any copy fails is never called done") {
  const Reports reports;
  int own = 0;
  fail_each_call([&](Pair& pair, GpuMemory& of_a, GpuMemory& of_b, const auto&) {
    const auto bytes = pattern(kFew, 4242);
    of_b.put(0, bytes);
    REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_READ, 1, of_a.sge(0, kFew), of_b.at(0), of_b.key()) == 0);
    const ibv_wc completion = pair.a.wait();
    check_completion(completion, of_a.get(0, kFew) == bytes);
    own += completion.status == IBV_WC_GENERAL_ERR;
  });
  CHECK(own > 0);
}

TEST_CASE("an atomic or a message of which any copy fails is never called done") {
  const Reports reports;
  fail_each_call([&](Pair& pair, GpuMemory&, GpuMemory& of_b, const auto&) {
    of_b.put(0, std::vector<std::byte>(8));
    REQUIRE(pair.a.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, pair.a.sge(0, 8), of_b.at(0),
                               of_b.key(), 5) == 0);
    const ibv_wc completion = pair.a.wait();
    check_completion(completion, of_b.get(0, 1)[0] == std::byte{5});
  });
  fail_each_call([&](Pair& pair, GpuMemory& of_a, GpuMemory& of_b, const auto& bytes) {
    REQUIRE(pair.b.try_receive(7, {of_b.sge(0, kFew)}) == 0);
    REQUIRE(pair.a.post_message(1, {of_a.sge(0, kFew)}) == 0);
    const ibv_wc received = pair.b.wait();
    if (received.status == IBV_WC_SUCCESS) CHECK(of_b.get(0, kFew) == bytes);
    check_completion(pair.a.wait(), received.status == IBV_WC_SUCCESS);
  });
}

TEST_CASE("a GPU that hangs is an error within seconds") {
  const Reports reports;
  FakeCuda cuda;
  const auto copier = make_copier(cuda);
  Pair pair;
  GpuMemory memory(cuda, copier, pair.a, kFew);
  cuda.copies.hangs = true;
  const auto begin = Clock::now();
  pair.a.rdma(IBV_WR_RDMA_WRITE, 1, memory.sge(0, kFew), pair.b);
  const ibv_wc completion = pair.a.wait();
  CHECK(completion.status == IBV_WC_GENERAL_ERR);
  CHECK(completion.vendor_err == driver::kCudaErrorTimeout);
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
}

}  // namespace
}  // namespace zerohop::testing
