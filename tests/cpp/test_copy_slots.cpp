// Ownership of what copies use, until they are known to have finished.
#include <doctest/doctest.h>

#include <atomic>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/report.hpp"
#include "eventually.hpp"
#include "fake_cuda.hpp"
#include "gpu/apart.hpp"
#include "gpu/copier.hpp"
#include "gpu/copy_ring.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/held_up.hpp"

namespace zerohop::gpu {
namespace {

using driver::kCudaErrorNotReady;
using driver::kCudaSuccess;
using testing::eventually;
using testing::FakeCuda;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kNbytes = 256;

struct Fixture {
  FakeCuda cuda;
  testing::AllGivenBack given_back{cuda};
  std::shared_ptr<Device> device = Device::open(cuda.table(), 0);
  std::uint64_t memory = cuda.add_bytes(kNbytes, std::byte{0xEE});

  int start(CopyRing& ring, unsigned slot = 0) {
    const CopyRing::Copy copy{ring.pages() + slot * kNbytes, memory, kNbytes};
    return ring.start(slot, CopyRing::Direction::to_device, {&copy, 1});
  }
  int finish(CopyRing& ring, unsigned slot = 0) {
    int status = kCudaErrorNotReady;
    while (status == kCudaErrorNotReady) status = ring.query(slot);
    return status;
  }
};

TEST_CASE_FIXTURE(Fixture, "what was copied is freed with the ring") {
  {
    CopyRing ring(device, 2, kNbytes);
    CHECK(start(ring) == kCudaSuccess);
    CHECK(finish(ring) == kCudaSuccess);
    CHECK(cuda.copies.pinned() == 1);
  }
  CHECK(cuda.copies.pinned() == 0);
  CHECK(cuda.copies.streams() == 0);
  CHECK(cuda.copies.events() == 0);
}

// The driver would wait for them, and block what they wait for.
TEST_CASE_FIXTURE(Fixture, "nothing is given back while kernels may wait for this process") {
  std::atomic<int> given{0};
  const auto give = [&given] { ++given; };
  {
    const auto outer = std::make_unique<const KernelsWait>();
    auto inner = std::make_unique<const KernelsWait>();
    {
      const CopyRing ring(device, 2, kNbytes);
    }
    give_back_apart(0, give);
    inner.reset();
    give_back_apart(0, give);
    std::atomic<bool> other{false};
    run_apart(0, [&other] { other = true; });  // work without driver calls continues
    CHECK(eventually([&] { return other.load(); }));
    CHECK(given == 0);
    CHECK(cuda.copies.pinned() == 1);
  }
  CHECK(eventually([&] { return given == 2; }));
  CHECK(eventually([&] { return cuda.copies.pinned() == 0; }));
  give_back_apart(0, give);
  CHECK(eventually([&] { return given == 3; }));
}

TEST_CASE_FIXTURE(Fixture, "what may still be copied is left as it is") {
  const auto check_left = [&] {
    CHECK(cuda.copies.pinned() == 1);
    CHECK(cuda.copies.streams() == 1);
    CHECK(cuda.copies.events() > 0);
  };
  cuda.copies.hangs = true;
  SUBCASE("by a ring") {
    {
      CopyRing ring(device, 2, kNbytes);
      CHECK(start(ring, 1) == kCudaSuccess);
      CHECK(ring.query(1) == kCudaErrorNotReady);
      CHECK(ring.query(0) == kCudaSuccess);
    }
    check_left();
  }
  SUBCASE("by slots of which none was marked") {
    const DeviceGuard guard(*device);
    {
      CopySlots slots(*cuda.table(), 2, kNbytes);
      CHECK(slots.to_device(memory, slots.pages(), kNbytes) == kCudaSuccess);
    }
    check_left();
  }
  SUBCASE("by one lane of a Copier, whose others go") {
    {
      Copier copier(device, kNbytes);
      driver::CopyLane* lane = nullptr;
      REQUIRE(copier.take(lane) == kCudaSuccess);
      CHECK(lane->start_to_device(memory, lane->chunk(0), kNbytes) == kCudaSuccess);
      CHECK(lane->mark(0) == kCudaSuccess);
      copier.give_back(*lane);
    }
    check_left();
  }
}

TEST_CASE_FIXTURE(Fixture, "a copy whose end could not be marked is not taken for an earlier one") {
  CopyRing ring(device, 2, kNbytes);
  CHECK(start(ring) == kCudaSuccess);
  CHECK(finish(ring) == kCudaSuccess);
  const auto fail_call = [&](int n) {
    cuda.error = 719;
    cuda.fail_at = cuda.calls + n;
  };
  fail_call(3);  // after the guard's and the copy's
  CHECK(start(ring) == 719);
  CHECK(cuda.failed == "event_record");
  fail_call(2);
  CHECK(ring.query(0) == 719);  // marking it fails again
  CHECK(cuda.failed == "event_record");
  CHECK(cuda.copies.waiting() == 1);
  CHECK(finish(ring) == kCudaSuccess);
  CHECK(cuda.copies.waiting() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a thread without the context asks beside a graph that is captured") {
  CopyRing ring(device, 2, kNbytes);
  CHECK(start(ring) == kCudaSuccess);
  cuda.capturing = true;
  CHECK(!FakeCuda::has_context());
  CHECK(finish(ring) == kCudaSuccess);
}

std::string told;

TEST_CASE("a driver call that returns late is reported, with the remedy") {
  const ReportSink former = set_report_sink([](std::string_view text) noexcept { told = text; });
  {
    const HeldUp watch("cuEventRecord", std::chrono::hours(1));
  }
  CHECK(told.empty());
  {
    const HeldUp watch("cuEventRecord", HeldUp::Clock::duration::zero());
  }
  CHECK(told.find("blocked cuEventRecord for 0.0 s") != std::string::npos);
  CHECK(told.ends_with("non_blocking=True"));
  set_report_sink(former);
}

}  // namespace
}  // namespace zerohop::gpu
