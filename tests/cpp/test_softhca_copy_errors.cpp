// Work on soft0 whose copies fail.
#include <doctest/doctest.h>

#include <string>

#include "base/report.hpp"
#include "gpu_memory.hpp"

using namespace zerohop;
using namespace zerohop::testing;

namespace {

constexpr std::size_t kNbytes = 20000;
std::atomic<int> reports{0};

struct Quiet {
  Quiet() {
    reports = 0;
    former = set_report_sink([](std::string_view) noexcept { ++reports; });
  }
  ~Quiet() { set_report_sink(former); }
  ReportSink former;
};

// One transfer in which the n-th CUDA call fails. Returns whether one did.
template <typename Move>
bool fails_at(int n, Move move) {
  FakeCuda cuda;
  const auto copier = make_copier(cuda);
  Pair pair;
  GpuMemory of_a(cuda, copier, pair.a, kNbytes);
  GpuMemory of_b(cuda, copier, pair.b, kNbytes);
  const auto bytes = pattern(kNbytes, static_cast<unsigned>(n));
  of_a.put(0, bytes);
  cuda.calls = 0;
  cuda.fail_at = n;
  move(pair, of_a, of_b, bytes);
  const bool failed = cuda.calls >= n;
  cuda.fail_at = 0;
  CHECK(eventually([&] { return cuda.depth == 0; }));
  return failed;
}

void check_completion(const ibv_wc& completion, bool done) {
  CAPTURE(completion.status);
  if (completion.status == IBV_WC_SUCCESS) CHECK(done);
  if (completion.status == IBV_WC_GENERAL_ERR) CHECK(completion.vendor_err == 999);
  CHECK((completion.status == IBV_WC_SUCCESS || completion.status == IBV_WC_GENERAL_ERR ||
         completion.status == IBV_WC_REM_OP_ERR || completion.status == IBV_WC_RETRY_EXC_ERR));
}

TEST_CASE("a write of which any copy fails is never called done") {
  const Quiet quiet;
  int refused = 0, own = 0;
  int n = 0;
  while (fails_at(++n, [&](Pair& pair, GpuMemory& of_a, GpuMemory& of_b, const auto& bytes) {
    REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, of_a.sge(0, kNbytes), of_b.at(0), of_b.key()) ==
            0);
    const ibv_wc completion = pair.a.wait();
    check_completion(completion, of_b.get(0, kNbytes) == bytes);
    refused += completion.status == IBV_WC_REM_OP_ERR;
    own += completion.status == IBV_WC_GENERAL_ERR;
  })) {
    REQUIRE(n < 1000);
  }
  CHECK(refused > 0);  // copies at the target
  CHECK(own > 0);      // copies at the source
  CHECK(reports > 0);  // the target's owner is notified
}

TEST_CASE("of small writes only those in front of a failed copy are called done") {
  const Quiet quiet;
  constexpr std::size_t kWrites = 40;
  constexpr std::size_t kEach = 300;
  bool failed = false;
  int n = 0;
  while (fails_at(++n, [&](Pair& pair, GpuMemory&, GpuMemory& of_b, const auto& bytes) {
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
  })) {
    REQUIRE(n < 1000);
  }
  CHECK(failed);
}

TEST_CASE("a read of which any copy fails is never called done") {
  const Quiet quiet;
  int own = 0;
  int n = 0;
  while (fails_at(++n, [&](Pair& pair, GpuMemory& of_a, GpuMemory& of_b, const auto&) {
    const auto bytes = pattern(kNbytes, 4242);
    of_b.put(0, bytes);
    REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_READ, 1, of_a.sge(0, kNbytes), of_b.at(0), of_b.key()) ==
            0);
    const ibv_wc completion = pair.a.wait();
    check_completion(completion, of_a.get(0, kNbytes) == bytes);
    own += completion.status == IBV_WC_GENERAL_ERR;
  })) {
    REQUIRE(n < 1000);
  }
  CHECK(own > 0);
}

TEST_CASE("an atomic or a message of which any copy fails is never called done") {
  const Quiet quiet;
  int n = 0;
  while (fails_at(++n, [&](Pair& pair, GpuMemory&, GpuMemory& of_b, const auto&) {
    of_b.put(0, std::vector<std::byte>(8));
    REQUIRE(pair.a.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, pair.a.sge(0, 8), of_b.at(0),
                               of_b.key(), 5) == 0);
    const ibv_wc completion = pair.a.wait();
    check_completion(completion, of_b.get(0, 1)[0] == std::byte{5});
  })) {
    REQUIRE(n < 1000);
  }
  n = 0;
  while (fails_at(++n, [&](Pair& pair, GpuMemory& of_a, GpuMemory& of_b, const auto& bytes) {
    REQUIRE(pair.b.try_receive(7, {of_b.sge(0, kNbytes)}) == 0);
    REQUIRE(pair.a.post_message(1, {of_a.sge(0, kNbytes)}) == 0);
    const ibv_wc received = pair.b.wait();
    if (received.status == IBV_WC_SUCCESS) CHECK(of_b.get(0, kNbytes) == bytes);
    check_completion(pair.a.wait(), received.status == IBV_WC_SUCCESS);
  })) {
    REQUIRE(n < 1000);
  }
}

TEST_CASE("a GPU that hangs is an error within seconds") {
  const Quiet quiet;
  FakeCuda cuda;
  const auto copier = make_copier(cuda);
  Pair pair;
  GpuMemory memory(cuda, copier, pair.a, kNbytes);
  cuda.copies.hangs = true;
  const auto begin = Clock::now();
  REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, memory.sge(0, kNbytes), pair.b.at(0),
                           pair.b.mr->rkey) == 0);
  const ibv_wc completion = pair.a.wait();
  CHECK(completion.status == IBV_WC_GENERAL_ERR);
  CHECK(completion.vendor_err == driver::kCudaErrorTimeout);
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
}

}  // namespace
