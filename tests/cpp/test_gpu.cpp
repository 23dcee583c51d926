// The gpu layer on a table without a GPU; and memory that is freed on a few threads, postponed, and
// in a child of fork().
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text_file.hpp"
#include "eventually.hpp"
#include "fake_cuda.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/dmabuf.hpp"
#include "gpu/peermem.hpp"
#include "gpu/write_order.hpp"
#include "no_threads.hpp"
#include "process.hpp"
#include "reported.hpp"

namespace zerohop::testing {
namespace {

using namespace gpu;

constexpr std::uint64_t kBase = 0x7f0000000000;
constexpr std::uint64_t kMiB = 1 << 20;

TEST_CASE("a device retains its primary context while it lives, and knows its facts") {
  FakeCuda fake;
  {
    const auto device = Device::open(fake.table(), 0);
    CHECK(fake.retained == 1);
    const DeviceFacts& facts = device->facts();
    CHECK(facts.device_name() == "cuda:0");
    CHECK(facts.name == "Fake GPU");
    CHECK(facts.pci == "ffff:ff:1f.7");
    CHECK(facts.compute == 90);
    CHECK(facts.driver == 13000);
    CHECK(facts.gpudirect);
    CHECK(facts.dmabuf);
    CHECK(facts.flush_by_host);
    CHECK(!facts.flush_by_stream);
    CHECK(!facts.bar1_nbytes);  // no such PCI device
  }
  CHECK(fake.retained == 0);
}

TEST_CASE("a device that is not there is named") {
  FakeCuda fake;
  const auto error = thrown_by<CudaError>([&] { Device::open(fake.table(), 7); });
  CHECK(error.code() == 101);
  CHECK(contains(error.what(), "cuda:7"));
  CHECK(fake.retained == 0);
}

TEST_CASE("BAR1 is the largest window of the PCI device") {
  CHECK(largest_window("0x0000104002000000 0x0000104002ffffff 0x000000000014220c\n"
                       "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
                       "0x0000100000000000 0x0000103fffffffff 0x000000000014220c\n") ==
        std::uint64_t{256} << 30);
  CHECK(!largest_window(""));
  CHECK(!largest_window("0x0 0x0 0x0\n"));
}

TEST_CASE("a guard makes the context current and leaves the thread as it was") {
  FakeCuda fake;
  const auto device = Device::open(fake.table(), 0);
  {
    const DeviceGuard guard(*device);
    CHECK(fake.depth == 1);
    CHECK(fake.capture_mode == driver::kCudaCaptureRelaxed);
    const DeviceGuard inner(*device);
    CHECK(fake.depth == 2);
  }
  CHECK(fake.depth == 0);
  CHECK(fake.capture_mode == 0);
}

TEST_CASE("every kind of memory is recognised") {
  FakeCuda fake;
  for (const MemoryKind kind : {MemoryKind::plain, MemoryKind::vmm, MemoryKind::pool,
                                MemoryKind::managed, MemoryKind::pinned}) {
    CAPTURE(kind_name(kind));
    const std::uint64_t id = fake.add(kind, kBase, kMiB);
    const Allocation allocation = find_allocation(*fake.table(), kBase + 5000);
    CHECK(allocation.kind == kind);
    CHECK(allocation.buffer_id == id);
    CHECK(allocation.extent.begin == kBase);
    CHECK(allocation.extent.end == kBase + kMiB);
    CHECK(allocation.gpudirect_capable == (kind == MemoryKind::plain || kind == MemoryKind::vmm));
    CHECK(fake.allocations_held == 0);
    CHECK(set_sync_memops(*fake.table(), kBase) == (kind != MemoryKind::vmm));
  }
  CHECK(find_allocation(*fake.table(), 64).kind == MemoryKind::unknown);
  CHECK(!set_sync_memops(*fake.table(), 64));
}

TEST_CASE("an allocation ends where its mapping or its own range ends") {
  FakeCuda fake;
  fake.add(MemoryKind::plain, kBase, 2 * kMiB);
  fake.find(kBase)->range = {kBase, kBase + 1000};  // one of several in a mapping
  CHECK(find_allocation(*fake.table(), kBase).extent.end == kBase + 1000);
  fake.add_chunks(2 * kBase, 2 * kMiB, 3);
  const Extent chunk = find_allocation(*fake.table(), 2 * kBase + 3 * kMiB).extent;
  CHECK(chunk.begin == 2 * kBase + 2 * kMiB);
  CHECK(chunk.end == 2 * kBase + 4 * kMiB);
}

TEST_CASE("chunks identify memory that was freed and allocated again at the same address") {
  FakeCuda fake;
  fake.add_chunks(kBase, 2 * kMiB, 4);
  const Extent extent{kBase + kMiB, kBase + 5 * kMiB};
  const auto before = find_chunks(*fake.table(), extent);
  CHECK(before.size() == 3);
  CHECK(before == find_chunks(*fake.table(), extent));
  fake.remove(kBase + 2 * kMiB);
  CHECK_THROWS_AS(find_chunks(*fake.table(), extent), RegistrationError);
  fake.add(MemoryKind::vmm, kBase + 2 * kMiB, 2 * kMiB);
  CHECK(find_chunks(*fake.table(), extent).size() == 3);
  CHECK(before != find_chunks(*fake.table(), extent));
}

TEST_CASE("an export covers the pages of a range and says where the range begins in it") {
  FakeCuda fake;
  const auto device = Device::open(fake.table(), 0);
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  fake.add_chunks(kBase, 2 * kMiB, 3);
  {
    const Dmabuf dmabuf = export_dmabuf(*device, {kBase + 2 * kMiB - 100, kBase + 4 * kMiB + 1});
    CHECK(bool(dmabuf.fd));
    CHECK(dmabuf.offset == page - 100);
    REQUIRE(fake.exports.size() == 1);
    CHECK(fake.exports[0].range.begin == kBase + 2 * kMiB - page);
    CHECK(fake.exports[0].range.end == kBase + 4 * kMiB + page);
    CHECK(fake.exports[0].flags == 0);
    CHECK(fake.open_exports() == 1);
  }
  CHECK(fake.open_exports() == 0);
  CHECK(fake.depth == 0);
}

TEST_CASE("an export over a hole, or through PCIe where the platform cannot, is refused") {
  FakeCuda fake;
  const auto device = Device::open(fake.table(), 0);
  fake.add_chunks(kBase, 2 * kMiB, 2);
  const auto code_of = [&](const Extent& extent, DmabufMapping mapping) {
    try {
      export_dmabuf(*device, extent, mapping);
      return 0;
    } catch (const CudaError& error) {
      return error.code();
    }
  };
  CHECK(code_of({kBase, kBase + 6 * kMiB}, DmabufMapping::usual) == driver::kCudaErrorInvalidValue);
  CHECK(code_of({kBase, kBase + kMiB}, DmabufMapping::pcie) == driver::kCudaErrorNotSupported);
  fake.pcie_mapping = true;
  CHECK(code_of({kBase, kBase + kMiB}, DmabufMapping::pcie) == 0);
  CHECK(fake.exports.back().flags == driver::kCudaDmabufMappingPcie);
  CHECK(fake.depth == 0);
}

TEST_CASE("a driver before 12.8 is not asked for a PCIe mapping") {
  FakeCuda fake;
  fake.driver_version = 12070;
  fake.pcie_mapping = true;  // it would misread the flag
  fake.add(MemoryKind::plain, kBase, kMiB);
  const auto device = Device::open(fake.table(), 0);
  CHECK_THROWS_AS(export_dmabuf(*device, {kBase, kBase + kMiB}, DmabufMapping::pcie), CudaError);
  CHECK(fake.exports.empty());
}

TEST_CASE("writes are flushed only where the GPU does not order them, by the means it has") {
  DeviceFacts facts;
  facts.flush_by_host = true;
  facts.writes_ordering = driver::kCudaScopeOwner;
  CHECK(write_order(facts, /*separate_paths=*/false) == WriteOrder::kept);
  CHECK(write_order(facts, /*separate_paths=*/true) == WriteOrder::read);
  facts.writes_ordering = driver::kCudaScopeAllDevices;
  CHECK(write_order(facts, false) == WriteOrder::kept);
  facts.writes_ordering = driver::kCudaScopeNone;
  CHECK(write_order(facts, false) == WriteOrder::flush);
  facts.flush_by_host = false;
  CHECK(write_order(facts, false) == WriteOrder::read);
}

TEST_CASE("the peer-memory module is found under any of its names") {
  const auto root =
      std::filesystem::temp_directory_path() / ("zerohop-peermem-" + std::to_string(::getpid()));
  CHECK(find_peermem(root).empty());
  const auto load = [&](const std::string& path) {
    std::filesystem::create_directories(root / path);
    std::ofstream(root / path / "version") << "1\n";
  };
  load("kernel/mm/memory_peers/nv_mem");
  CHECK(find_peermem(root) == "nv_mem");
  load("module/nvidia_peermem");
  CHECK(find_peermem(root) == "nvidia_peermem");
  std::filesystem::remove_all(root);
}

void use_everything(FakeCuda& fake) {
  const auto device = Device::open(fake.table(), 0);
  (void)find_allocation(device->cuda(), kBase);
  (void)find_chunks(device->cuda(), {kBase, kBase + 4 * kMiB});
  const Dmabuf dmabuf = export_dmabuf(*device, {kBase, kBase + 4 * kMiB});
  flush_writes(*device);
}

TEST_CASE("any call may fail: a CudaError comes out and nothing is leaked") {
  std::vector<std::string> failed;
  for (int n = 1;; ++n) {
    CAPTURE(n);
    FakeCuda fake;
    fake.add_chunks(kBase, 2 * kMiB, 2);
    fake.fail_at = n;
    int code = 0;
    try {
      use_everything(fake);
    } catch (const CudaError& error) {
      code = error.code();
    }
    CHECK(fake.retained == 0);
    CHECK(fake.depth == 0);
    CHECK(fake.capture_mode == 0);
    CHECK(fake.allocations_held == 0);
    CHECK(fake.open_exports() == 0);
    if (fake.failed.empty()) break;
    failed.push_back(fake.failed);
    CAPTURE(fake.failed);
    // A refusal there only means that the memory is of another kind.
    CHECK(code == (fake.failed == "memory_retain_allocation" ? 0 : 999));
  }
  for (const char* function :
       {"init", "device_get", "device_get_name", "device_get_pci_bus_id", "driver_get_version",
        "device_get_attribute", "primary_context_retain", "pointer_get_attributes", "context_push",
        "memory_export_range", "flush_gpudirect_writes"}) {
    CAPTURE(function);
    CHECK(std::find(failed.begin(), failed.end(), function) != failed.end());
  }
}

// --- what is given back on other threads ---

// Threads of this process with that name.
int threads_named(const std::string& name) {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string comm = task.path() / "comm";
    const TextFile file = open_text(comm.c_str());
    char line[32] = "";
    if (file && std::fgets(line, sizeof line, file.get()) && line == name + "\n") ++count;
  }
  return count;
}

struct Busy {  // GPUs that run a kernel until asked to stop
  FakeCuda cuda;
  AllGivenBack given_back{cuda};
  std::vector<std::shared_ptr<const Device>> devices;
  Busy() {
    cuda.gpus = 2;
    for (const int ordinal : {0, 1}) devices.push_back(Device::open(cuda.table(), ordinal));
    cuda.busy = true;
  }
  void end() {
    cuda.busy = false;
    cuda.busy.notify_all();
  }
};

TEST_CASE("all that one GPU gives back has one thread, in its order") {
  std::promise<void> begun;
  std::promise<void> go_on;
  std::vector<int> order;
  std::atomic<int> done{0};
  run_apart(0, [&] {
    begun.set_value();
    go_on.get_future().wait();
  });
  begun.get_future().wait();
  for (int i = 0; i < 100; ++i) {
    run_apart(0, [&, i] {
      order.push_back(i);
      ++done;
    });
  }
  CHECK(threads_named("zh-free") == 1);
  go_on.set_value();
  CHECK(eventually([&] { return done == 100; }));
  for (int i = 0; i < 100; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  CHECK(eventually([] { return threads_named("zh-free") == 0; }));
}

TEST_CASE_FIXTURE(Busy, "a GPU that is waited for holds up nothing else") {
  std::atomic<int> waited{0};
  run_when_idle(devices[0], [&] { ++waited; });
  std::atomic<int> others{0};
  run_apart(0, [&] { ++others; });
  run_apart(1, [&] { ++others; });
  CHECK(eventually([&] { return others == 2; }));
  CHECK(waited == 0);
  end();
  CHECK(eventually([&] { return waited == 1; }));
}

TEST_CASE_FIXTURE(Busy, "one wait for a GPU serves all waiting work") {
  std::atomic<int> waited{0};
  const int calls = cuda.calls;
  run_when_idle(devices[0], [&] { ++waited; });
  CHECK(eventually([&] { return cuda.calls > calls; }));  // the first wait may have begun
  for (int i = 0; i < 100; ++i) run_when_idle(devices[0], [&] { ++waited; });
  CHECK(eventually([] { return threads_named("zh-free-idle") == 1; }));
  end();
  CHECK(eventually([&] { return waited == 101; }));
  CHECK(cuda.synchronized <= 2);
}

TEST_CASE("postponed work runs even where no thread can be started") {
  const NoThreads none;
  int given = 0;
  auto waits = std::make_unique<const KernelsWait>();
  give_back_apart(0, [&given] { ++given; });
  give_back(0, [&given] { ++given; });
  CHECK(given == 0);
  waits.reset();
  CHECK(given == 2);
}

// The parent's threads and CUDA do not exist here.
TEST_CASE("a child of fork() gives back nothing of its parent's, and its own at once") {
  std::atomic<int> parents{0};
  auto waits = std::make_unique<const KernelsWait>();
  give_back_apart(0, [&parents] { ++parents; });
  CHECK(in_child([&] {
          const NoThreads none;  // all work is done when the call returns
          int own = 0;
          give_back_apart(0, [&own] { ++own; });
          const bool waited_for_nobody = own == 1;
          {
            const KernelsWait here;
            waits.reset();
            give_back_apart(0, [&own] { ++own; });
          }
          return (waited_for_nobody ? 0 : 1) + (own == 2 ? 0 : 2) + (parents == 0 ? 0 : 4);
        }) == 0);
  CHECK(parents == 0);
  waits.reset();
  CHECK(eventually([&] { return parents == 1; }));
}

}  // namespace
}  // namespace zerohop::testing
