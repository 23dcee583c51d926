// Registration of GPU memory, on fake tables for GPU and adapter.
#include <doctest/doctest.h>

#include <cerrno>

#include "gpu_fixture.hpp"

namespace zerohop::engine {
namespace {

TEST_CASE_FIXTURE(GpuFixture, "memory is registered through the dma-buf of its pages") {
  const Registered registered = get(kBase + 5000, 10000);
  CHECK(registered.choice->way == Way::dmabuf);
  CHECK(registered.choice->relaxed_ordering);
  REQUIRE(registered.region);
  CHECK(registered.region->address() == kBase + 5000);
  CHECK(registered.region->nbytes() == 10000);
  CHECK(verbs.registered_by == "reg_dmabuf_mr");
  CHECK(verbs.registered_offset == (kBase + 5000) % 4096);
  CHECK(verbs.registered_iova == kBase + 5000);
  CHECK((verbs.registered_access & IBV_ACCESS_RELAXED_ORDERING) != 0);
  CHECK((verbs.registered_access & IBV_ACCESS_REMOTE_WRITE) != 0);
  CHECK(cuda.exports.back().range.begin % 4096 == 0);
  CHECK(cuda.open_exports() == 0);  // the registration no longer needs the descriptor
  CHECK(cuda.depth == 0);
}

TEST_CASE_FIXTURE(GpuFixture, "a GPU and an adapter are tried once") {
  (void)get(kBase, 4096);
  const auto exports = cuda.exports.size();
  (void)get(kBase + 8192, 4096);
  CHECK(cuda.exports.size() == exports + 1);
  CHECK(registrations->pair_facts(0).dmabuf.worked());
  CHECK(registrations->pair_facts(0).adapter == "fake0");
}

TEST_CASE_FIXTURE(GpuFixture, "memory is registered on a GPU that has none left") {
  cuda.no_memory = true;
  CHECK(get(kBase, 4096).choice->way == Way::dmabuf);
}

TEST_CASE_FIXTURE(GpuFixture, "what was short at the first trial is tried again") {
  open(kHostWithPeermem);
  SUBCASE("the adapter's memory, the GPU's window, or the moment") {
    for (const int error : {ENOMEM, EAGAIN, EINTR}) {
      CAPTURE(error);
      verbs.dmabuf_error = verbs.address_error = error;
      CHECK(get(kBase, 4096).choice->way == Way::staged);
    }
    verbs.dmabuf_error = verbs.address_error = 0;
  }
  SUBCASE("the GPU's memory") {
    verbs.address_error = EFAULT;
    cuda.export_error = driver::kCudaErrorOutOfMemory;
    CHECK(get(kBase, 4096).choice->way == Way::staged);
    cuda.export_error = 0;
  }
  SUBCASE("memory that is not exported came first") {
    verbs.address_error = EFAULT;
    cuda.export_error = 801;
    CHECK(get(kBase, 4096).choice->way == Way::staged);
    cuda.export_error = 0;
  }
  CHECK(get(kBase, 4096).choice->way == Way::dmabuf);
  CHECK(registrations->pair_facts(0).lasting);
}

TEST_CASE_FIXTURE(GpuFixture, "relaxed ordering that was short at the first trial is tried again") {
  verbs.relaxed_ordering_error = ENOMEM;
  open();
  CHECK(!get(kBase, 4096).choice->relaxed_ordering);
  verbs.relaxed_ordering_error = 0;
  CHECK(get(kBase + 4096, 4096).choice->relaxed_ordering);
}

TEST_CASE_FIXTURE(GpuFixture, "what the adapter does not offer is tried once") {
  verbs.dmabuf_error = EOPNOTSUPP;
  open();
  CHECK(get(kBase, 4096).choice->way == Way::staged);
  verbs.dmabuf_error = 0;
  CHECK(get(kBase, 4096).choice->way == Way::staged);
}

TEST_CASE_FIXTURE(GpuFixture, "memory that no adapter reaches says nothing of other memory") {
  cuda.add(MemoryKind::pool, 2 * kBase, kMiB);
  CHECK(get(2 * kBase, 4096).choice->way == Way::staged);
  CHECK(cuda.exports.empty());
  CHECK(get(kBase, 4096).choice->way == Way::dmabuf);
}

TEST_CASE_FIXTURE(GpuFixture, "a later chunk that is not open to adapters closes the whole array") {
  cuda.add_chunks(2 * kBase, 2 * kMiB, 3);
  cuda.find(2 * kBase + 2 * kMiB)->gpudirect_capable = false;
  const Registered staged = get(2 * kBase, 6 * kMiB);
  CHECK(staged.choice->way == Way::staged);
  CHECK(contains(staged.choice->reason, "part of the 3 chunks"));
  CHECK(contains(staged.choice->reason, "gpuDirectRDMACapable"));
  CHECK(contains(refusal(2 * kBase, 6 * kMiB, Demand::dmabuf), "gpuDirectRDMACapable"));
  CHECK(get(2 * kBase, 2 * kMiB).choice->way == Way::dmabuf);  // alone, the first can be registered
}

// The cost of finding a registration again: every chunk must be checked, as one in the middle may
// have been remapped, and the driver describes one address at a time.
TEST_CASE_FIXTURE(GpuFixture, "a look-up takes one call of the driver for each chunk") {
  for (const int chunks : {1, 5, 500}) {
    CAPTURE(chunks);
    const std::uint64_t begin = static_cast<std::uint64_t>(2 + chunks) * kBase;
    const std::uint64_t nbytes = static_cast<std::uint64_t>(chunks) * 64 * kKiB;
    cuda.add_chunks(begin, 64 * kKiB, chunks);
    const auto held = get(begin, nbytes);
    const int before = cuda.calls;
    CHECK(get(begin, nbytes).region.get() == held.region.get());
    CHECK(cuda.calls == before + chunks);
  }
}

TEST_CASE_FIXTURE(GpuFixture, "memory across several chunks is one registration") {
  cuda.add_chunks(2 * kBase, 2 * kMiB, 3);
  const Registered registered = get(2 * kBase + kMiB, 4 * kMiB);
  CHECK(registered.choice->way == Way::dmabuf);
  CHECK(registered.region->nbytes() == 4 * kMiB);
}

TEST_CASE_FIXTURE(GpuFixture, "what the memory itself is refused leads to the next way") {
  verbs.least_refused = 512 * kKiB;
  const Registered staged = get(kBase, kMiB);
  CHECK(staged.choice->way == Way::staged);
  CHECK(contains(staged.choice->reason, "BAR1"));
  CHECK(get(kBase, 4096).choice->way == Way::dmabuf);
  CHECK(contains(refusal(kBase, kMiB, Demand::dmabuf), "BAR1"));
  cuda.export_error = 1;
  CHECK(contains(get(kBase + 4096, 4096).choice->reason, "CUDA error 1"));
  CHECK(cuda.open_exports() == 0);
}

TEST_CASE_FIXTURE(GpuFixture, "relaxed ordering is left out where it is refused or not wanted") {
  SUBCASE("refused") {
    verbs.relaxed_ordering_error = EINVAL;
    open();
    CHECK(!get(kBase, 4096).choice->relaxed_ordering);
  }
  SUBCASE("not wanted") {
    options.relaxed_ordering = RelaxedOrdering::off;
    open();
    CHECK(!get(kBase, 4096).choice->relaxed_ordering);
  }
  SUBCASE("wanted in vain") {
    verbs.relaxed_ordering_error = EINVAL;
    options.relaxed_ordering = RelaxedOrdering::on;
    open();
    CHECK(contains(refusal(kBase, 4096, Demand::automatic), "leave it at 2"));
    return;
  }
  CHECK((verbs.registered_access & IBV_ACCESS_RELAXED_ORDERING) == 0);
}

TEST_CASE_FIXTURE(GpuFixture, "Data Direct registers what is mapped for PCIe, else the usual way") {
  verbs.data_direct = true;
  cuda.pcie_mapping = true;
  open(kHost, /*mlx5=*/true);
  CHECK(get(kBase, 4096).choice->data_direct);
  CHECK(verbs.registered_by == "mlx5dv_reg_dmabuf_mr");
  CHECK(verbs.registered_mlx5_access == driver::kMlx5DataDirect);
  CHECK(cuda.exports.back().flags == driver::kCudaDmabufMappingPcie);
  cuda.pcie_mapping = false;  // this one memory cannot
  CHECK(!get(kBase + 8192, 4096).choice->data_direct);
  CHECK(verbs.registered_by == "reg_dmabuf_mr");
  CHECK(cuda.exports.back().flags == 0);
  open(kHost, /*mlx5=*/true);  // no memory can
  CHECK(!get(kBase, 4096).choice->data_direct);
  CHECK(get(kBase, 4096).choice->relaxed_ordering);
}

TEST_CASE_FIXTURE(GpuFixture, "Data Direct goes without relaxed ordering where that is refused") {
  verbs.data_direct = true;
  cuda.pcie_mapping = true;
  verbs.relaxed_ordering_error = EINVAL;
  open(kHost, /*mlx5=*/true);
  const Registered registered = get(kBase, 4096);
  CHECK(registered.choice->data_direct);
  CHECK(!registered.choice->relaxed_ordering);
  CHECK(verbs.registered_by == "mlx5dv_reg_dmabuf_mr");
  CHECK((verbs.registered_access & IBV_ACCESS_RELAXED_ORDERING) == 0);
}

TEST_CASE_FIXTURE(GpuFixture, "memory without bytes is not registered") {
  const Registered nothing = get(kBase, 0);
  CHECK(nothing.region == nullptr);
  CHECK(nothing.choice->reason == "it has no bytes");
}

}  // namespace
}  // namespace zerohop::engine
