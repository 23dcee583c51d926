// Many copies in few launches, on fake CUDA.
#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "base/error.hpp"
#include "fake_cuda.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/list_copier.hpp"

namespace zerohop::gpu {
namespace {

using testing::FakeCuda;
using Bytes = std::vector<std::byte>;

Deadline soon() { return Deadline::after(Deadline::Seconds{30}); }

struct Fixture {
  FakeCuda cuda;
  testing::AllGivenBack given_back{cuda};
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

void copy(ListCopier& copier, const std::vector<CopyPiece>& ranges, const Fixture& f,
          const Deadline& deadline) {
  std::uint64_t nbytes = 0;
  for (const CopyPiece& range : ranges) nbytes += range.nbytes;
  RangeSource pieces(ranges);
  const DeviceGuard guard(*f.device);
  copier.copy(pieces, nbytes, {}, f.stream.get(), deadline);
}

TEST_CASE("every byte of every range is copied, however many there are") {
  Fixture f;
  constexpr std::uint64_t kNbytes = 1 << 20;
  const std::uint64_t from = f.cuda.add_bytes(kNbytes);
  const std::uint64_t to = f.cuda.add_bytes(kNbytes, std::byte{0xEE});
  Bytes source(kNbytes);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = std::byte(i * 7 + i / 251);
  f.cuda.copies.write(from, source);
  ListCopier copier(f.device, Kernels::load(f.device));
  std::vector<CopyPiece> ranges;
  Bytes expected(kNbytes, std::byte{0xEE});
  SUBCASE("more than the lists have room for") {
    constexpr std::uint64_t kEach = 10;
    const std::uint64_t count = kNbytes / kEach;  // 104857: seven lists
    static_assert(kNbytes / kEach > std::uint64_t{ListCopier::kLists} * ListCopier::kPieces);
    for (std::uint64_t i = 0; i < count; ++i) {
      ranges.push_back({from + i * kEach, to + (count - 1 - i) * kEach, kEach});
      for (std::uint64_t k = 0; k < kEach; ++k) {
        expected[(count - 1 - i) * kEach + k] = source[i * kEach + k];
      }
    }
  }
  SUBCASE("one that takes many pieces, and one without bytes") {
    ranges = {{from, to + 1, kNbytes - 1}, {from, to, 0}};
    for (std::uint64_t i = 1; i < kNbytes; ++i) expected[i] = source[i - 1];
  }
  SUBCASE("none") {}
  copy(copier, ranges, f, soon());
  f.finish();
  CHECK(f.cuda.copies.read(to, kNbytes) == expected);
}

TEST_CASE("a GPU that does not come to read its lists is not waited for without end") {
  Fixture f;
  const std::uint64_t memory = f.cuda.add_bytes(64);
  ListCopier copier(f.device, Kernels::load(f.device));
  f.cuda.copies.hangs = true;
  const std::vector<CopyPiece> ranges(std::size_t{ListCopier::kLists} * ListCopier::kPieces + 1,
                                      CopyPiece{memory, memory + 32, 1});
  try {
    copy(copier, ranges, f, Deadline::after(Deadline::Seconds{0.05}));
    FAIL("no error");
  } catch (const TransferTimeout& late) {
    CHECK(late.effect() == Effect::some);
  }
  f.cuda.copies.hangs = false;
  f.finish();
}

TEST_CASE("nothing is left behind when making a copier fails") {
  Fixture f;
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
    for (const Deadline bound = soon(); !is_empty() && !bound.passed();) std::this_thread::yield();
    CHECK(is_empty());
    if (made) break;
  }
}

}  // namespace
}  // namespace zerohop::gpu
