// Host memory that GPUs access, page by page, and registers of adapters.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "driver/ring_memory.hpp"
#include "eventually.hpp"
#include "fake_cuda.hpp"
#include "gpu/host_pages.hpp"
#include "reported.hpp"

namespace zerohop::testing {
namespace {

using gpu::HostPages;
using gpu::PageLock;
using gpu::PageUse;

// Nothing is mapped there, also under the sanitizers: the table touches no page.
constexpr std::uint64_t kBase = 0x4200'0000'0000;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBlock = PageLock::kBlock;

struct Pages {
  FakeCuda cuda;
  AllGivenBack given_back{cuda};
  std::shared_ptr<const gpu::Device> device = gpu::Device::open(cuda.table(), 0);

  std::vector<Extent> reach(HostPages& pages, std::uint64_t begin, std::uint64_t end) const {
    return pages.reach(device, {kBase + begin, kBase + end}, soon());
  }
};

bool is(const std::vector<Extent>& found,
        const std::vector<std::pair<std::uint64_t, std::uint64_t>>& wanted) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  for (const Extent& extent : found) all.emplace_back(extent.begin - kBase, extent.end - kBase);
  return all == wanted;
}

TEST_CASE_FIXTURE(Pages, "a block at a time is locked, where it is used") {
  HostPages pages({kBase + 10, kBase + 3 * kBlock + 10}, nullptr, PageUse::write);
  CHECK(is(reach(pages, 100, 200), {{0, kBlock}}));
  CHECK(is(reach(pages, kBlock - 1, kBlock + 1), {{0, kBlock}, {kBlock, 2 * kBlock}}));
  CHECK(is(reach(pages, 3 * kBlock + 5, 3 * kBlock + 10), {{3 * kBlock, 3 * kBlock + kPage}}));
  CHECK(PageLock::all_nbytes() == 2 * kBlock + kPage);
  CHECK(cuda.registrations == 3);
}

TEST_CASE_FIXTURE(Pages, "registers of two queues share a page") {
  {
    HostPages first({kBase, kBase + 8}, nullptr, PageUse::registers);
    HostPages second({kBase + kPage / 2, kBase + kPage / 2 + 8}, nullptr, PageUse::registers);
    CHECK(is(reach(first, 0, 8), {{0, kPage}}));
    CHECK(is(reach(second, kPage / 2, kPage / 2 + 8), {{0, kPage}}));
    CHECK(cuda.registrations == 1);
  }
  // Opened at once: the first may still be being unmapped.
  HostPages third({kBase + 64, kBase + 72}, nullptr, PageUse::registers);
  CHECK(is(reach(third, 64, 72), {{0, kPage}}));
}

TEST_CASE_FIXTURE(Pages,
                  "registers that are memory, as an emulated adapter's, are locked as that") {
  const driver::RingMemory page(0, nullptr, 1);
  const auto begin = reinterpret_cast<std::uint64_t>(page.page(0));
  HostPages registers({begin, begin + 8}, nullptr, PageUse::registers);
  registers.reach_all(device, soon());
  CHECK(cuda.copies.is_locked(page.page(0)));
}

TEST_CASE_FIXTURE(Pages, "registers have the address that the driver says") {
  HostPages registers({kBase, kBase + 8}, nullptr, PageUse::registers);
  registers.reach_all(device, soon());
  CHECK(gpu::address_on(*device, kBase + 4) == kBase + 4);
  cuda.registered_elsewhere = std::uint64_t{1} << 40;
  CHECK(gpu::address_on(*device, kBase + 4) == kBase + 4 + cuda.registered_elsewhere);
  CHECK_THROWS_AS(gpu::address_on(*device, kBase + kPage), CudaError);
}

TEST_CASE_FIXTURE(Pages, "a driver that does not map registers is told what allows it") {
  cuda.refuses_registration = true;
  cuda.error = driver::kCudaErrorNotSupported;
  HostPages registers({kBase, kBase + 8}, nullptr, PageUse::registers);
  std::string reason;
  try {
    registers.reach_all(device, soon());
  } catch (const RouteUnavailable& error) {
    reason = error.what();
  }
  for (const char* part : {"doorbell registers", "PeerMappingOverride=1", "iommu=pt", "nvidia"}) {
    CHECK(contains(reason, part));
  }
}

TEST_CASE_FIXTURE(Pages, "what others have locked in between is used as well") {
  HostPages middle({kBase + 2 * kPage + 1, kBase + 2 * kPage + 2}, nullptr, PageUse::write);
  CHECK(is(reach(middle, 2 * kPage + 1, 2 * kPage + 2), {{2 * kPage, 3 * kPage}}));
  HostPages all({kBase, kBase + 5 * kPage}, nullptr, PageUse::write);
  CHECK(is(reach(all, 1, 5 * kPage),
           {{0, 2 * kPage}, {2 * kPage, 3 * kPage}, {3 * kPage, 5 * kPage}}));
}

TEST_CASE_FIXTURE(Pages, "no more is locked than half of the memory") {
  const auto half = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * kPage / 2;
  HostPages pages({kBase, kBase + half + 2 * kBlock}, nullptr, PageUse::write);
  CHECK_THROWS_WITH_AS(reach(pages, 0, half + 2 * kBlock),
                       doctest::Contains("more than half of this host's memory"), RouteUnavailable);
  CHECK(PageLock::all_nbytes() <= half);
  CHECK(PageLock::all_nbytes() + kBlock > half);
  CHECK_THROWS_AS(reach(pages, 0, 1), RouteUnavailable);  // for a while
  HostPages other({kBase, kBase + half}, nullptr, PageUse::write);
  CHECK(is(reach(other, 0, 1), {{0, kBlock}}));
}

TEST_CASE_FIXTURE(Pages, "released pages are locked again, and their owner stays until then") {
  std::atomic<int> owners = 0;
  for (int i = 0; i < 200; ++i) {
    ++owners;
    std::shared_ptr<void> owner(nullptr, [&](void*) { --owners; });
    HostPages pages({kBase, kBase + 10}, std::move(owner), PageUse::write);
    CHECK(is(reach(pages, 0, 10), {{0, kPage}}));
    CHECK(cuda.copies.registered().contains(kBase));
  }
  CHECK(eventually([&] { return owners == 0 && PageLock::all_nbytes() == 0; }));
  CHECK(cuda.copies.registered().empty());
}

TEST_CASE_FIXTURE(Pages, "threads lock and release the same pages") {
  std::vector<std::thread> threads;
  std::atomic<int> bad = 0;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 100; ++i) {
        const std::uint64_t begin = (i + t) % 3 * kPage;
        HostPages pages({kBase + begin, kBase + begin + 2 * kPage}, nullptr, PageUse::write);
        const auto found = reach(pages, begin, begin + 2 * kPage);
        const auto locked = cuda.copies.registered();
        for (const Extent& extent : found) {
          const auto known = locked.find(extent.begin);
          bad += known == locked.end() || known->second != extent.end ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(bad == 0);
}

TEST_CASE_FIXTURE(Pages, "a failure leaves no lock, and is remembered for a while") {
  HostPages pages({kBase, kBase + 10}, nullptr, PageUse::write);
  cuda.refuses_registration = true;
  cuda.error = 2;
  CHECK_THROWS_WITH_AS(
      reach(pages, 0, 10),
      doctest::Contains("the host's memory cannot be page-locked for cuda:0: cuMemHostRegister"),
      RouteUnavailable);
  CHECK(PageLock::all_nbytes() == 0);
  cuda.refuses_registration = false;
  CHECK_THROWS_AS(reach(pages, 0, 10), RouteUnavailable);
  HostPages again({kBase, kBase + 10}, nullptr, PageUse::write);
  CHECK(is(reach(again, 0, 10), {{0, kPage}}));
}

}  // namespace
}  // namespace zerohop::testing
