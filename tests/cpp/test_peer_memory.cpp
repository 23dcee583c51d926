// GPU memory exported from one process to another, on fake CUDA.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "eventually.hpp"
#include "fake_cuda.hpp"
#include "gpu/buffer.hpp"
#include "gpu/peer_memory.hpp"

namespace zerohop::gpu {
namespace {

using testing::eventually;
using testing::FakeCuda;

// Buffers are freed when the GPU is idle, on a separate thread: the table must outlive that.
struct Fixture {
  FakeCuda cuda;
  std::shared_ptr<Device> device = Device::open(cuda.table(), 0);

  ~Fixture() {
    device = nullptr;
    CHECK(eventually([this] { return cuda.retained == 0; }));
    CHECK(cuda.vmm.physical() + cuda.vmm.mapped() + cuda.vmm.reserved() + cuda.opened == 0);
  }
};

constexpr std::uint64_t kBase = 0x7f0000000000;
constexpr std::uint64_t kMiB = 1 << 20;

Deadline soon() { return Deadline::after(Deadline::Seconds{30}); }

Extent extent_of(const Buffer& buffer) {
  return {buffer.address(), buffer.address() + buffer.nbytes()};
}

void refuses(const Device& device, MemoryKind kind, const std::string& part) {
  try {
    (void)export_chunks(device, {kBase, kBase + kMiB});
    FAIL("no error for " << kind_name(kind));
  } catch (const RouteUnavailable& error) {
    CHECK_MESSAGE(std::string(error.what()).find(part) != std::string::npos, error.what());
  }
}

TEST_CASE("our own memory goes by descriptor") {
  Fixture fixture;
  auto& [fake, device] = fixture;
  {
    const auto buffer = Buffer::create(device, 3 * kMiB, soon());
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
  Fixture fixture;
  auto& [fake, device] = fixture;
  const auto buffer = Buffer::create(device, 2 * kMiB, soon());
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
  Fixture fixture;
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
  Fixture fixture;
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
  Fixture fixture;
  auto& [fake, device] = fixture;
  const auto buffer = Buffer::create(device, kMiB, soon());
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
}  // namespace zerohop::gpu
