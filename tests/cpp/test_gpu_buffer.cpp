// Memory that zerohop allocates on a GPU: its driver calls, what remains when the driver refuses,
// when the memory is freed; and its export to another process.
#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "eventually.hpp"
#include "fake_cuda.hpp"
#include "gpu/buffer.hpp"
#include "gpu/peer_memory.hpp"
#include "reported.hpp"

namespace zerohop::testing {
namespace {

using namespace gpu;

using Bytes = std::vector<std::byte>;
constexpr double kPatience = 20.0;  // seconds, for what must happen

struct Buffers {
  FakeCuda cuda;

  ~Buffers() {
    cuda.busy = false;
    cuda.busy.notify_all();
    CHECK(eventually([&] { return is_clean(); }));
  }
  std::shared_ptr<Device> open() { return Device::open(cuda.table(), 0); }
  std::shared_ptr<gpu::Buffer> make(std::uint64_t nbytes, double timeout = kPatience) {
    return gpu::Buffer::create(open(), nbytes, within(timeout));
  }
  // The context goes last.
  bool is_clean() const {
    return cuda.vmm.mapped() + cuda.vmm.physical() + cuda.vmm.reserved() + cuda.copies.streams() +
               cuda.copies.events() + cuda.depth + cuda.retained ==
           0;
  }
  std::string refusal(std::uint64_t nbytes, driver::CudaResult code) {
    const auto error = thrown_by<CudaError>([&] { make(nbytes); });
    CHECK(error.code() == code);
    return error.what();
  }
};

TEST_CASE_FIXTURE(Buffers, "a buffer is zeroed, of whole pages, exportable and open to adapters") {
  const auto buffer = make(1000);
  CHECK(buffer->nbytes() == 1000);
  CHECK(cuda.copies.read(buffer->address(), FakeVmm::kPage) == Bytes(FakeVmm::kPage));
  const driver::CudaMemoryProperties& wanted = cuda.vmm.properties;
  CHECK(wanted.type == driver::kCudaMemoryPinned);
  CHECK(wanted.handle_types == driver::kCudaHandleFd);
  CHECK(wanted.location.type == driver::kCudaLocationDevice);
  CHECK(wanted.location.ordinal == 0);
  CHECK(wanted.gpudirect_capable == 1);
  CHECK(wanted.win32_metadata == nullptr);
  REQUIRE(cuda.vmm.accesses.size() == 1);
  CHECK(cuda.vmm.accesses[0].location.ordinal == 0);
  CHECK(cuda.vmm.accesses[0].flags == driver::kCudaAccessReadWrite);
  CHECK(cuda.depth == 0);
}

TEST_CASE_FIXTURE(Buffers, "what the GPU does not offer is not asked for") {
  cuda.attributes[driver::kCudaFdExportSupported] = 0;
  cuda.attributes[driver::kCudaGpudirectWithVmm] = 0;
  const auto buffer = make(1);
  CHECK(cuda.vmm.properties.handle_types == driver::kCudaHandleNone);
  CHECK(cuda.vmm.properties.gpudirect_capable == 0);
  cuda.attributes[driver::kCudaVmmSupported] = 0;
  CHECK(contains(refusal(1, driver::kCudaErrorNotSupported), "cuda:0 cannot map memory"));
}

TEST_CASE_FIXTURE(Buffers, "other GPUs that reach the memory may use it") {
  cuda.gpus = 4;
  cuda.neighbours = {1, 3};
  const auto buffer = make(1);
  std::vector<int> ordinals;
  for (const auto& access : cuda.vmm.accesses) ordinals.push_back(access.location.ordinal);
  CHECK(ordinals == std::vector<int>{0, 1, 3});
}

TEST_CASE_FIXTURE(Buffers, "no bytes need no memory") {
  const auto buffer = make(0);
  CHECK(buffer->address() == 0);
  CHECK(cuda.vmm.physical() == 0);
}

TEST_CASE_FIXTURE(Buffers, "a full GPU says what was asked for and what is left") {
  cuda.vmm.free_nbytes = 3 * FakeVmm::kPage;
  const std::string text = refusal(4 * FakeVmm::kPage, driver::kCudaErrorOutOfMemory);
  CHECK(contains(text, "no room for 8388608 bytes on cuda:0"));
  CHECK(contains(text, "6291456 of 1073741824 are free"));
  CHECK(is_clean());
  cuda.vmm.free_nbytes = 4 * FakeVmm::kPage;
  CHECK(make(4 * FakeVmm::kPage)->address() != 0);
}

TEST_CASE_FIXTURE(Buffers, "memory goes only when the GPU has done its work") {
  auto buffer = make(1);
  const std::uint64_t address = buffer->address();
  cuda.busy = true;
  buffer.reset();  // returns at once
  CHECK(cuda.vmm.mapped() == 1);
  CHECK(cuda.copies.read(address, 8) == Bytes(8));  // as a kernel may that still runs
  cuda.busy = false;
  cuda.busy.notify_all();
  CHECK(eventually([&] { return is_clean(); }));
  CHECK(cuda.synchronized == 1);
}

TEST_CASE_FIXTURE(Buffers, "memory that goes disturbs no stream capture") {
  cuda.capturing = true;
  auto buffer = make(1);
  const int calls = cuda.calls;
  buffer.reset();
  CHECK(eventually([&] { return cuda.calls > calls + 3; }));  // it polls repeatedly
  CHECK(cuda.vmm.mapped() == 1);
  cuda.capturing = false;
  CHECK(eventually([&] { return is_clean(); }));
}

TEST_CASE_FIXTURE(Buffers, "memory on its way back is waited for") {
  cuda.vmm.free_nbytes = FakeVmm::kPage;
  auto first = make(1);
  cuda.busy = true;
  first.reset();
  CHECK_THROWS_AS(make(1, 0.05), CudaError);  // it is not freed in time
  std::thread later([this] {
    cuda.busy = false;
    cuda.busy.notify_all();
  });
  CHECK(make(1)->nbytes() == 1);
  later.join();
}

TEST_CASE_FIXTURE(Buffers, "a GPU too busy to zero it is a timeout, and all is given back later") {
  cuda.copies.hangs = true;
  cuda.busy = true;
  CHECK_THROWS_WITH_AS(make(1, 0.05), doctest::Contains("a kernel keeps the GPU busy"),
                       TransferTimeout);
  CHECK(cuda.vmm.mapped() == 1);  // the zeroing may still run
}

TEST_CASE("whichever call of the driver fails, nothing is left") {
  int failures = 0;
  for (int n = 1;; ++n) {
    Buffers fixture;
    fixture.cuda.gpus = 2;
    fixture.cuda.neighbours = {1};
    fixture.cuda.fail_at = n;
    try {
      fixture.make(1).reset();
    } catch (const CudaError& error) {
      CAPTURE(fixture.cuda.failed);
      CHECK(error.code() == fixture.cuda.error);
      ++failures;
    }
    CHECK(eventually([&] { return fixture.is_clean(); }));
    if (fixture.cuda.calls < n) break;
  }
  CHECK(failures > 20);
}

// --- exports ---

// Buffers are freed when the GPU is idle, on a separate thread: the table must outlive that.
struct Exports {
  FakeCuda cuda;
  std::shared_ptr<Device> device = Device::open(cuda.table(), 0);

  ~Exports() {
    device = nullptr;
    CHECK(eventually([this] { return cuda.retained == 0; }));
    CHECK(cuda.vmm.physical() + cuda.vmm.mapped() + cuda.vmm.reserved() + cuda.opened == 0);
  }
};

constexpr std::uint64_t kBase = 0x7f0000000000;
constexpr std::uint64_t kMiB = 1 << 20;

Extent extent_of(const gpu::Buffer& buffer) {
  return {buffer.address(), buffer.address() + buffer.nbytes()};
}

void refuses(const Device& device, MemoryKind kind, const std::string& part) {
  CAPTURE(kind_name(kind));
  CHECK(contains(
      message_of<RouteUnavailable>([&] { (void)export_chunks(device, {kBase, kBase + kMiB}); }),
      part));
}

TEST_CASE("our own memory goes by descriptor") {
  Exports fixture;
  auto& [fake, device] = fixture;
  {
    const auto buffer = gpu::Buffer::create(device, 3 * kMiB, soon());
    const auto chunks = export_chunks(*device, extent_of(*buffer));
    REQUIRE(chunks.size() == 1);
    CHECK(bool(chunks[0].descriptor));
    CHECK(chunks[0].extent.begin == buffer->address());
    CHECK(chunks[0].gpu.bytes[0] == 0x10);
    const int mapped = fake.vmm.mapped();
    {
      const auto memory = PeerMemory::map(device, chunks);
      CHECK(fake.vmm.mapped() == mapped + 1);
      CHECK(memory->at(buffer->address() + 77) == memory->at(buffer->address()) + 77);
      CHECK(memory->at(buffer->address()) != buffer->address());
      REQUIRE(fake.vmm.accesses.size() == 1);
      CHECK(fake.vmm.accesses[0].location.ordinal == 0);
    }
    CHECK(eventually([&] { return fake.vmm.mapped() == mapped; }));
  }
  CHECK(fake.allocations_held == 0);
}

TEST_CASE("memory of several chunks is mapped without a gap") {
  Exports fixture;
  auto& [fake, device] = fixture;
  const auto buffer = gpu::Buffer::create(device, 2 * kMiB, soon());
  std::vector<ChunkExport> chunks;
  for (int i = 0; i < 3; ++i) {
    auto more = export_chunks(*device, extent_of(*buffer));
    const std::uint64_t begin = kBase + static_cast<std::uint64_t>(i) * 2 * kMiB;
    more[0].extent = {begin, begin + 2 * kMiB};
    chunks.push_back(std::move(more[0]));
  }
  const int reserved = fake.vmm.reserved();
  {
    const auto memory = PeerMemory::map(device, chunks);
    CHECK(fake.vmm.reserved() == reserved + 1);
    CHECK(memory->extent().end - memory->extent().begin == 6 * kMiB);
    CHECK(memory->at(kBase + 5 * kMiB) - memory->at(kBase) == 5 * kMiB);
  }
  CHECK(eventually([&] { return fake.vmm.reserved() == reserved; }));
}

TEST_CASE("memory of cudaMalloc goes by handle") {
  Exports fixture;
  auto& [fake, device] = fixture;
  const std::uint64_t begin = fake.add_bytes(kMiB);
  const auto chunks = export_chunks(*device, {begin + 100, begin + 200});
  REQUIRE(chunks.size() == 1);
  CHECK(!chunks[0].descriptor);
  CHECK(chunks[0].extent.begin == begin);
  {
    const auto memory = PeerMemory::map(device, chunks);
    CHECK(fake.opened == 1);
  }
  CHECK(eventually([&] { return fake.opened == 0; }));
}

TEST_CASE("what no other process can map is refused with the reason") {
  Exports fixture;
  auto& [fake, device] = fixture;
  for (const MemoryKind kind : {MemoryKind::pool, MemoryKind::managed, MemoryKind::pinned}) {
    fake.add(kind, kBase, kMiB);
    refuses(*device, kind, kind_name(kind));
  }
  fake.add(MemoryKind::plain, kBase, kMiB / 2);
  fake.add(MemoryKind::plain, kBase + kMiB / 2, kMiB / 2);
  refuses(*device, MemoryKind::plain, "several allocations");
  fake.remove(kBase + kMiB / 2);
  CHECK_THROWS_AS((void)export_chunks(*device, {kBase, kBase + kMiB}), RegistrationError);
}

TEST_CASE("a failure at any call leaves nothing behind") {
  Exports fixture;
  auto& [fake, device] = fixture;
  const auto buffer = gpu::Buffer::create(device, kMiB, soon());
  const int physical = fake.vmm.physical();
  const int mapped = fake.vmm.mapped();
  int failures = 0;
  for (int n = 1;; ++n) {
    fake.calls = 0;
    fake.fail_at = n;
    bool failed = false;
    try {
      const auto chunks = export_chunks(*device, extent_of(*buffer));
      const auto memory = PeerMemory::map(device, chunks);
      fake.fail_at = 0;
    } catch (const Error&) {
      failed = true;
    }
    fake.fail_at = 0;
    CAPTURE(fake.failed);
    CHECK(eventually([&] {
      return fake.vmm.physical() == physical && fake.vmm.mapped() == mapped &&
             fake.vmm.reserved() == 1 && fake.depth == 0;
    }));
    CHECK(fake.allocations_held == 0);
    if (!failed) break;
    ++failures;
  }
  CHECK(failures >= 8);
}

}  // namespace
}  // namespace zerohop::testing
