// Memory of a GPU that is registered by its address: what nvidia-peermem gives to an adapter.
#include <sys/mman.h>

#include <cerrno>

#include "gpu_memory.hpp"

namespace zerohop::testing {
namespace {

constexpr std::size_t kNbytes = 1 << 16;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct Peermem {
  FakeCuda cuda;
  Pair pair;

  int refused(std::uint64_t begin, std::size_t nbytes) {
    errno = 0;
    ibv_mr* mr = soft().reg_mr(pair.a.pd, reinterpret_cast<void*>(begin), nbytes, kAll);
    if (mr != nullptr) soft().dereg_mr(mr);
    return mr == nullptr ? errno : 0;
  }
};

TEST_CASE_FIXTURE(Peermem, "an adapter gets one allocation that the driver opens to it") {
  if (!on_libibverbs()) return;  // soft0 is given a copier
  const std::uint64_t begin = cuda.add_bytes(kNbytes);
  CHECK(refused(begin, kNbytes) == 0);
  CHECK(refused(begin + 4096, kNbytes - 4096) == 0);
  CHECK(refused(begin + 4096, kNbytes) == EFAULT);
  cuda.find(begin)->gpudirect_capable = false;
  CHECK(refused(begin, kNbytes) == EFAULT);
  cuda.find(begin)->gpudirect_capable = true;
  cuda.gone = true;  // then nobody knows that it is a GPU's
  CHECK(refused(begin, kNbytes) == EFAULT);
  cuda.gone = false;
  CHECK(refused(begin, kNbytes) == 0);
}

TEST_CASE_FIXTURE(Peermem, "what was freed while it is registered is not reached") {
  if (!on_libibverbs()) return;
  const std::uint64_t begin = cuda.add_bytes(kNbytes);
  ibv_mr* mr = soft().reg_mr(pair.b.pd, reinterpret_cast<void*>(begin), kNbytes, kAll);
  REQUIRE(mr != nullptr);
  cuda.remove(begin);
  cuda.copies.release(begin);
  REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, 100), begin, mr->rkey) == 0);
  CHECK(pair.a.wait().status == IBV_WC_REM_OP_ERR);
  CHECK(soft().dereg_mr(mr) == 0);
}

// In two elements: libmlx5 would copy all of it out of a completion, and faults on a GPU's memory.
TEST_CASE_FIXTURE(Peermem, "a short message arrives where a part of it is a GPU's") {
  if (!on_libibverbs()) return;
  const std::uint64_t begin = cuda.add_bytes(kNbytes);
  ibv_mr* mr = soft().reg_mr(pair.b.pd, reinterpret_cast<void*>(begin), kNbytes, kAll);
  REQUIRE(mr != nullptr);
  const auto bytes = pattern(20, 3);
  std::ranges::copy(bytes, pair.a.buffer.get());
  REQUIRE(pair.b.try_receive(1, {pair.b.sge(0, 8), {begin + 5, 12, mr->lkey}}) == 0);
  REQUIRE(pair.a.post_message(2, {pair.a.sge(0, 20)}) == 0);
  CHECK(pair.b.wait().byte_len == 20);
  CHECK(std::equal(bytes.begin(), bytes.begin() + 8, pair.b.buffer.get()));
  CHECK(cuda.copies.read(begin + 5, 12) == std::vector(bytes.begin() + 8, bytes.end()));
  CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  CHECK(soft().dereg_mr(mr) == 0);
}

}  // namespace
}  // namespace zerohop::testing
