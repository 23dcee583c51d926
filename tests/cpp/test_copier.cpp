// What copies of a GPU use: pinned slots until they are known to have finished, lists in few
// launches, and page-locked host memory.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "eventually.hpp"
#include "fake_cuda.hpp"
#include "gpu/apart.hpp"
#include "gpu/copier.hpp"
#include "gpu/copy_ring.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/held_up.hpp"
#include "gpu/list_copier.hpp"
#include "reported.hpp"

namespace zerohop::testing {
namespace {

using namespace gpu;
using driver::kCudaErrorNotReady;
using driver::kCudaSuccess;

// --- slots ---

using Bytes = std::vector<std::byte>;
constexpr std::size_t kNbytes = 256;

struct Slots {
  FakeCuda cuda;
  AllGivenBack given_back{cuda};
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

TEST_CASE_FIXTURE(Slots, "what was copied is freed with the ring") {
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
TEST_CASE_FIXTURE(Slots, "nothing is given back while kernels may wait for this process") {
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

TEST_CASE_FIXTURE(Slots, "what may still be copied is left as it is") {
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

TEST_CASE_FIXTURE(Slots, "a copy whose end could not be marked is not taken for an earlier one") {
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

TEST_CASE_FIXTURE(Slots, "a thread without the context asks beside a graph that is captured") {
  CopyRing ring(device, 2, kNbytes);
  CHECK(start(ring) == kCudaSuccess);
  cuda.capturing = true;
  CHECK(!FakeCuda::has_context());
  CHECK(finish(ring) == kCudaSuccess);
}

TEST_CASE("a driver call that returns late is reported, with the remedy") {
  const Reports reports;
  {
    const HeldUp watch("cuEventRecord", std::chrono::hours(1));
  }
  CHECK(reports.count() == 0);
  {
    const HeldUp watch("cuEventRecord", HeldUp::Clock::duration::zero());
  }
  CHECK(reports.count("blocked cuEventRecord for 0.0 s") == 1);
  CHECK(reports.all().front().ends_with("non_blocking=True"));
}

// --- lists ---

struct Lists {
  FakeCuda cuda;
  AllGivenBack given_back{cuda};
  std::shared_ptr<Device> device = Device::open(cuda.table(), 0);
  Stream stream = make();

  Stream make() {
    const DeviceGuard guard(*device);
    return make_stream(*cuda.table());
  }
  void finish() {
    const DeviceGuard guard(*device);
    const Event done = make_event(*cuda.table());
    REQUIRE(cuda.table()->event_record(done.get(), stream.get()) == driver::kCudaSuccess);
    while (cuda.table()->event_query(done.get()) != driver::kCudaSuccess) {
    }
  }
};

void copy(ListCopier& copier, const std::vector<CopyPiece>& ranges, const Lists& f,
          const Deadline& deadline) {
  std::uint64_t nbytes = 0;
  for (const CopyPiece& range : ranges) nbytes += range.nbytes;
  RangeSource pieces(ranges);
  const DeviceGuard guard(*f.device);
  copier.copy(pieces, nbytes, {}, f.stream.get(), deadline);
}

TEST_CASE("every byte of every range is copied, however many there are") {
  Lists f;
  constexpr std::uint64_t kAll = 1 << 20;
  const std::uint64_t from = f.cuda.add_bytes(kAll);
  const std::uint64_t to = f.cuda.add_bytes(kAll, std::byte{0xEE});
  Bytes source(kAll);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = std::byte(i * 7 + i / 251);
  f.cuda.copies.write(from, source);
  ListCopier copier(f.device, Kernels::load(f.device));
  std::vector<CopyPiece> ranges;
  Bytes expected(kAll, std::byte{0xEE});
  SUBCASE("more than the lists have room for") {
    constexpr std::uint64_t kEach = 10;
    const std::uint64_t count = kAll / kEach;  // 104857: seven lists
    static_assert(kAll / kEach > std::uint64_t{ListCopier::kLists} * ListCopier::kPieces);
    for (std::uint64_t i = 0; i < count; ++i) {
      ranges.push_back({from + i * kEach, to + (count - 1 - i) * kEach, kEach});
      for (std::uint64_t k = 0; k < kEach; ++k) {
        expected[(count - 1 - i) * kEach + k] = source[i * kEach + k];
      }
    }
  }
  SUBCASE("one that takes many pieces, and one without bytes") {
    ranges = {{from, to + 1, kAll - 1}, {from, to, 0}};
    for (std::uint64_t i = 1; i < kAll; ++i) expected[i] = source[i - 1];
  }
  SUBCASE("none") {}
  copy(copier, ranges, f, soon());
  f.finish();
  CHECK(f.cuda.copies.read(to, kAll) == expected);
}

TEST_CASE("a GPU that does not come to read its lists is not waited for without end") {
  Lists f;
  const std::uint64_t memory = f.cuda.add_bytes(64);
  ListCopier copier(f.device, Kernels::load(f.device));
  f.cuda.copies.hangs = true;
  const std::vector<CopyPiece> ranges(std::size_t{ListCopier::kLists} * ListCopier::kPieces + 1,
                                      CopyPiece{memory, memory + 32, 1});
  const auto late = thrown_by<TransferTimeout>([&] { copy(copier, ranges, f, within(0.05)); });
  CHECK(late.effect() == Effect::some);
  f.cuda.copies.hangs = false;
  f.finish();
}

TEST_CASE("nothing is left behind when making a copier fails") {
  Lists f;
  for (int n = 1;; ++n) {
    f.cuda.calls = 0;
    f.cuda.fail_at = n;
    bool made = false;
    try {
      const ListCopier copier(f.device, Kernels::load(f.device));
      f.cuda.fail_at = 0;
      made = true;
    } catch (const CudaError&) {
    }
    f.cuda.fail_at = 0;
    const auto is_empty = [&] {  // kernels are released on a separate thread
      return f.device.use_count() == 1 && f.cuda.modules == 0 && f.cuda.copies.pinned() == 0 &&
             f.cuda.copies.events() == 0 && f.cuda.depth == 0;
    };
    CHECK(eventually(is_empty));
    if (made) break;
  }
}

}  // namespace
}  // namespace zerohop::testing
