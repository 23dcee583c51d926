// Registration of GPU memory, on fake tables for GPU and adapter: registrations are kept, reused
// and evicted, and any call on the way may fail.
#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "gpu_fixture.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;

TEST_CASE_FIXTURE(GpuFixture, "memory is registered through the dma-buf of its pages") {
  const GpuRegion registered = get(kBase + 5000, 10000);
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
  const GpuRegion staged = get(2 * kBase, 6 * kMiB);
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
  const GpuRegion registered = get(2 * kBase + kMiB, 4 * kMiB);
  CHECK(registered.choice->way == Way::dmabuf);
  CHECK(registered.region->nbytes() == 4 * kMiB);
}

TEST_CASE_FIXTURE(GpuFixture, "what the memory itself is refused leads to the next way") {
  verbs.least_refused = 512 * kKiB;
  const GpuRegion staged = get(kBase, kMiB);
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
  const GpuRegion registered = get(kBase, 4096);
  CHECK(registered.choice->data_direct);
  CHECK(!registered.choice->relaxed_ordering);
  CHECK(verbs.registered_by == "mlx5dv_reg_dmabuf_mr");
  CHECK((verbs.registered_access & IBV_ACCESS_RELAXED_ORDERING) == 0);
}

TEST_CASE_FIXTURE(GpuFixture, "memory without bytes is not registered") {
  const GpuRegion nothing = get(kBase, 0);
  CHECK(nothing.region == nullptr);
  CHECK(nothing.choice->reason == "it has no bytes");
}

// --- the cache ---

TEST_CASE_FIXTURE(GpuFixture, "a registration is used again for the same memory and rights") {
  const auto region = get(kBase, 64 * kKiB).region;
  CHECK(get(kBase + 4096, 4096).region.get() == region.get());
  CHECK(stats().hits == 1);
  CHECK(stats().entries == 1);
  CHECK(stats().nbytes == 64 * kKiB);
  const GpuRegion read_only =
      registrations->find_or_create({.extent = {kBase, kBase + 4096}, .writable = false});
  CHECK(read_only.region.get() != region.get());
  CHECK(get(kBase + 32 * kKiB, 64 * kKiB).region.get() != region.get());  // reaches further
  CHECK(get(kBase, 4096, Demand::automatic, /*shared=*/false).region.get() != region.get());
  CHECK(stats().entries == 3);
  CHECK(stats().misses == 3);
}

TEST_CASE_FIXTURE(GpuFixture,
                  "a registration stays for the next use, unless its key was given out") {
  (void)get(kBase, 4096);
  CHECK(stats().unused == 1);
  (void)get(kBase, 4096).region->rkey();
  CHECK(stats().hits == 1);
  CHECK(stats().entries == 0);  // closing ends the peers' right
}

TEST_CASE_FIXTURE(GpuFixture, "memory freed and allocated again never meets its old registration") {
  const auto* before = get(kBase, 4096).region.get();
  cuda.remove(kBase);
  CHECK_THROWS_AS(get(kBase, 4096), RegistrationError);
  cuda.add(MemoryKind::plain, kBase, kMiB);
  const auto after = get(kBase, 4096);
  CHECK(after.region.get() != before);
  CHECK(stats().hits == 0);
  CHECK(stats().stale == 1);
  CHECK(stats().entries == 1);
}

TEST_CASE_FIXTURE(GpuFixture, "a chunk mapped anew in the middle makes a registration stale") {
  cuda.add_chunks(2 * kBase, 2 * kMiB, 3);
  const auto held = get(2 * kBase, 6 * kMiB);
  cuda.remove(2 * kBase + 2 * kMiB);
  cuda.add(MemoryKind::vmm, 2 * kBase + 2 * kMiB, 2 * kMiB);
  CHECK(get(2 * kBase, 4096).region.get() == held.region.get());  // this chunk is the same
  CHECK(get(2 * kBase + 2 * kMiB, 4096).region.get() != held.region.get());
  CHECK(get(2 * kBase, 6 * kMiB).region.get() != held.region.get());
}

TEST_CASE_FIXTURE(GpuFixture, "the least recently used of the unused are evicted") {
  options.cache = {.entries = 2, .nbytes = 100 * kKiB};
  open();
  const auto used = get(kBase, 200 * kKiB);  // not counted while it is in use
  (void)get(kBase + 200 * kKiB, 4096);
  (void)get(kBase + 300 * kKiB, 4096);
  CHECK(stats().evictions == 0);
  (void)get(kBase + 200 * kKiB, 4096);  // the other is the older one now
  (void)get(kBase + 400 * kKiB, 4096);
  CHECK(stats().evictions == 1);
  CHECK(stats().unused == 2);
  const auto misses = stats().misses;
  (void)get(kBase + 200 * kKiB, 4096);
  CHECK(stats().misses == misses);
  (void)get(kBase + 300 * kKiB, 4096);
  CHECK(stats().misses == misses + 1);
  (void)get(kBase + 500 * kKiB, 99 * kKiB);  // by bytes
  CHECK(stats().unused_nbytes <= 100 * kKiB);
  CHECK(used.region->nbytes() == 200 * kKiB);
}

TEST_CASE_FIXTURE(GpuFixture, "among many registrations one is found, or not, by a look at few") {
  constexpr std::uint64_t kMany = 200;
  std::vector<GpuRegion> held;
  for (std::uint64_t i = 0; i < kMany; ++i) held.push_back(get(kBase + i * 4096, 2048));
  held.push_back(get(kBase, 100 * kKiB));  // a long one, below most
  const std::uint64_t before = stats().looks;
  CHECK(before <= 3 * (kMany + 1));
  (void)get(kBase + (kMany + 1) * 4096, 64);  // none
  (void)get(kBase + (kMany - 1) * 4096, 64);
  CHECK(get(kBase + 10 * 4096 + 2048, 64).region.get() == held.back().region.get());
  CHECK(stats().looks - before <= 9);
}

TEST_CASE("registrations outlive the cache's owner, and none is left behind") {
  FakeCuda cuda;
  FakeVerbs verbs;
  cuda.add(MemoryKind::plain, kBase, kMiB);
  {
    GpuRegion held;
    {
      GpuRegistrations registrations(open_adapter(verbs), cuda.table(), kHost, {});
      held = registrations.find_or_create({.extent = {kBase, kBase + 4096}, .writable = true});
      (void)registrations.find_or_create({.extent = {kBase + 8192, kBase + 9000}});
    }
    CHECK(cuda.retained == 1);  // by what is held
    CHECK(held.region->nbytes() == 4096);
    CHECK(verbs.live() == 3);  // context, domain, region
  }
  CHECK(cuda.retained == 0);
  CHECK(verbs.live() == 0);
  CHECK(verbs.violations() == std::vector<std::string>{});
}

// Registers in every way; whatever fails is an Error, or one way less.
void register_everything(FakeCuda& cuda, FakeVerbs& verbs) {
  GpuRegistrations registrations(open_adapter(verbs, /*mlx5=*/true), cuda.table(), kHostWithPeermem,
                                 {});
  const auto get = [&](std::uint64_t at, Demand demand) {
    return registrations.find_or_create(
        {.extent = {at, at + 4096}, .writable = true, .demand = demand});
  };
  const auto held = get(kBase, Demand::automatic);
  (void)get(kBase, Demand::automatic);
  (void)get(kBase + 8192, Demand::peermem);
}

struct Leftovers {
  std::string failed;
  bool error = false;
};

Leftovers fail_call(int cuda_call, int verbs_call) {
  FakeCuda cuda;
  FakeVerbs verbs;
  cuda.add(MemoryKind::plain, kBase, kMiB);
  cuda.pcie_mapping = verbs.data_direct = true;
  cuda.fail_at = cuda_call;
  verbs.fail_at = verbs_call;
  verbs.error_number = EIO;
  Leftovers left;
  try {
    register_everything(cuda, verbs);
  } catch (const Error&) {
    left.error = true;
  }
  CHECK(cuda.retained == 0);
  CHECK(cuda.depth == 0);
  CHECK(cuda.allocated == 0);
  CHECK(cuda.allocations_held == 0);
  CHECK(cuda.open_exports() == 0);
  CHECK(verbs.live() == 0);
  CHECK(verbs.violations() == std::vector<std::string>{});
  left.failed = cuda_call != 0 ? cuda.failed : verbs.failed;
  return left;
}

void fail_every_call(bool of_cuda, const std::vector<std::string>& must_fail) {
  std::vector<std::string> failed;
  for (int n = 1;; ++n) {
    CAPTURE(n);
    const Leftovers left = fail_call(of_cuda ? n : 0, of_cuda ? 0 : n);
    if (left.failed.empty()) {
      CHECK(!left.error);
      break;
    }
    failed.push_back(left.failed);
  }
  for (const std::string& function : must_fail) {
    CAPTURE(function);
    CHECK(std::find(failed.begin(), failed.end(), function) != failed.end());
  }
}

TEST_CASE("any CUDA call may fail and nothing is leaked") {
  fail_every_call(true,
                  {"init", "primary_context_retain", "context_push", "memory_export_range",
                   "pointer_get_attributes", "memory_retain_allocation", "pointer_set_attribute"});
}

TEST_CASE("any verbs call may fail and nothing is leaked") {
  fail_every_call(false, {"open_device", "alloc_pd", "reg_dmabuf_mr", "mlx5dv_reg_dmabuf_mr",
                          "reg_mr", "reg_mr_iova2", "get_data_direct_sysfs_path"});
}

}  // namespace
}  // namespace zerohop::testing
