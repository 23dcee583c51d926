// Memory that zerohop allocates on a GPU: its driver calls, what remains when the driver refuses,
// and when the memory is freed.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "eventually.hpp"
#include "fake_cuda.hpp"
#include "gpu/buffer.hpp"

namespace zerohop::gpu {
namespace {

using testing::eventually;
using testing::FakeCuda;
using testing::FakeVmm;
using Bytes = std::vector<std::byte>;

constexpr double kPatience = 20.0;  // seconds, for what must happen

Deadline within(double seconds) { return Deadline::after(Deadline::Seconds(seconds)); }

struct Fixture {
  FakeCuda cuda;

  ~Fixture() {
    cuda.busy = false;
    cuda.busy.notify_all();
    CHECK(eventually([&] { return is_clean(); }));
  }
  std::shared_ptr<Device> open() { return Device::open(cuda.table(), 0); }
  std::shared_ptr<Buffer> make(std::uint64_t nbytes, double timeout = kPatience) {
    return Buffer::create(open(), nbytes, within(timeout));
  }
  // The context goes last.
  bool is_clean() const {
    return cuda.vmm.mapped() + cuda.vmm.physical() + cuda.vmm.reserved() + cuda.copies.streams() +
               cuda.copies.events() + cuda.depth + cuda.retained ==
           0;
  }
  std::string refusal(std::uint64_t nbytes, driver::CudaResult code) {
    try {
      make(nbytes);
    } catch (const CudaError& error) {
      CHECK(error.code() == code);
      return error.what();
    }
    return "nothing was refused";
  }
};

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

TEST_CASE_FIXTURE(Fixture, "a buffer is zeroed, of whole pages, exportable and open to adapters") {
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

TEST_CASE_FIXTURE(Fixture, "what the GPU does not offer is not asked for") {
  cuda.attributes[driver::kCudaFdExportSupported] = 0;
  cuda.attributes[driver::kCudaGpudirectWithVmm] = 0;
  const auto buffer = make(1);
  CHECK(cuda.vmm.properties.handle_types == driver::kCudaHandleNone);
  CHECK(cuda.vmm.properties.gpudirect_capable == 0);
  cuda.attributes[driver::kCudaVmmSupported] = 0;
  CHECK(contains(refusal(1, driver::kCudaErrorNotSupported), "cuda:0 cannot map memory"));
}

TEST_CASE_FIXTURE(Fixture, "other GPUs that reach the memory may use it") {
  cuda.gpus = 4;
  cuda.neighbours = {1, 3};
  const auto buffer = make(1);
  std::vector<int> ordinals;
  for (const auto& access : cuda.vmm.accesses) ordinals.push_back(access.location.ordinal);
  CHECK(ordinals == std::vector<int>{0, 1, 3});
}

TEST_CASE_FIXTURE(Fixture, "no bytes need no memory") {
  const auto buffer = make(0);
  CHECK(buffer->address() == 0);
  CHECK(cuda.vmm.physical() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a full GPU says what was asked for and what is left") {
  cuda.vmm.free_nbytes = 3 * FakeVmm::kPage;
  const std::string text = refusal(4 * FakeVmm::kPage, driver::kCudaErrorOutOfMemory);
  CHECK(contains(text, "no room for 8388608 bytes on cuda:0"));
  CHECK(contains(text, "6291456 of 1073741824 are free"));
  CHECK(is_clean());
  cuda.vmm.free_nbytes = 4 * FakeVmm::kPage;
  CHECK(make(4 * FakeVmm::kPage)->address() != 0);
}

TEST_CASE_FIXTURE(Fixture, "a GPU that is not there is named") {
  const auto open_it = [&] { (void)Device::open(cuda.table(), 7); };
  CHECK_THROWS_WITH_AS(open_it(), doctest::Contains("cuda:7"), CudaError);
}

TEST_CASE_FIXTURE(Fixture, "memory goes only when the GPU has done its work") {
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

TEST_CASE_FIXTURE(Fixture, "memory that goes disturbs no stream capture") {
  cuda.capturing = true;
  auto buffer = make(1);
  const int calls = cuda.calls;
  buffer.reset();
  CHECK(eventually([&] { return cuda.calls > calls + 3; }));  // it polls repeatedly
  CHECK(cuda.vmm.mapped() == 1);
  cuda.capturing = false;
  CHECK(eventually([&] { return is_clean(); }));
}

TEST_CASE_FIXTURE(Fixture, "memory on its way back is waited for") {
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

TEST_CASE_FIXTURE(Fixture, "a GPU too busy to zero it is a timeout, and all is given back later") {
  cuda.copies.hangs = true;
  cuda.busy = true;
  CHECK_THROWS_WITH_AS(make(1, 0.05), doctest::Contains("a kernel keeps the GPU busy"),
                       TransferTimeout);
  CHECK(cuda.vmm.mapped() == 1);  // the zeroing may still run
}

TEST_CASE("whichever call of the driver fails, nothing is left") {
  int failures = 0;
  for (int n = 1;; ++n) {
    Fixture fixture;
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

}  // namespace
}  // namespace zerohop::gpu
