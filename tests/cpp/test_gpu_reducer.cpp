// Reductions in the memory of a nonexistent GPU: they are done once they have been waited for, and
// the wait ends in any case.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "engine/collective/combiner.hpp"
#include "eventually.hpp"
#include "fake_cuda.hpp"

namespace zerohop::testing {
namespace {

using engine::collective::GpuCombiner;
using engine::collective::Op;
using engine::collective::Reduction;

constexpr std::uint64_t kNbytes = 64;
const Reduction kSum{.op = Op::sum, .dtype = DType::parse("int32")};

struct Reducing {
  FakeCuda cuda;
  AllGivenBack given_back{cuda};
  std::shared_ptr<const gpu::Device> device = gpu::Device::open(cuda.table(), 0);
  std::shared_ptr<gpu::Reducer> reducer = std::make_shared<gpu::Reducer>(device);
  std::array<std::uint64_t, 3> blocks{cuda.add_bytes(kNbytes, std::byte{1}),
                                      cuda.add_bytes(kNbytes, std::byte{2}),
                                      cuda.add_bytes(kNbytes, std::byte{4})};
  std::uint64_t out = cuda.add_bytes(kNbytes, std::byte{0});

  static std::byte* at(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }
  void begin(GpuCombiner& by, std::uint64_t to) {
    const std::vector<const std::byte*> in{at(blocks[0]), at(blocks[1]), at(blocks[2])};
    by.begin(kSum, at(to), in, kNbytes / 4);
  }
  bool is(std::uint64_t address, std::byte value) {
    return cuda.copies.read(address, kNbytes) == std::vector(kNbytes, value);
  }
};

TEST_CASE_FIXTURE(Reducing, "what is begun is done in order, and once it has been waited for") {
  GpuCombiner by(reducer, within(20));
  CHECK_FALSE(by.on_host());
  begin(by, out);
  begin(by, blocks[0]);  // in place
  CHECK(is(out, std::byte{0}));
  by.finish();
  CHECK(is(out, std::byte{7}));
  CHECK(is(blocks[0], std::byte{7}));
  by.finish();  // of nothing
}

TEST_CASE_FIXTURE(Reducing,
                  "it follows the default stream, in which the program makes its arrays") {
  for (const std::byte made : {std::byte{3}, std::byte{5}}) {
    cuda.copies.launch(
        [this, made] { cuda.copies.overwrite(blocks[1], std::vector(kNbytes, made)); });
    GpuCombiner by(reducer, within(20));
    begin(by, out);
    by.finish();
    CHECK(is(out, static_cast<std::byte>(5 + static_cast<int>(made))));
  }
}

TEST_CASE_FIXTURE(Reducing, "a GPU that other work keeps busy ends the call") {
  cuda.copies.hangs = true;
  GpuCombiner by(reducer, within(0.01));
  begin(by, out);
  CHECK_THROWS_WITH_AS(by.finish(), doctest::Contains("was not done in time"), TransferTimeout);
  cuda.copies.hangs = false;
}

TEST_CASE_FIXTURE(Reducing, "a launch that fails ends the call") {
  GpuCombiner by(reducer, within(20));
  cuda.fail_at = cuda.calls + 4;  // after the context, and the default stream's event
  CHECK_THROWS_AS(begin(by, out), CudaError);
  CHECK(cuda.failed == "launch_kernel");
}

TEST_CASE_FIXTURE(Reducing, "more arrays than a kernel takes, and none, are refused") {
  GpuCombiner by(reducer, within(20));
  const std::vector<const std::byte*> many(gpu::kReduceInputs + 1, at(blocks[0])), none;
  CHECK_THROWS_AS(by.begin(kSum, at(out), many, 1), std::invalid_argument);
  CHECK_THROWS_AS(by.begin(kSum, at(out), none, 1), std::invalid_argument);
}

TEST_CASE("streams, events and kernels are given back") {
  FakeCuda cuda;
  const AllGivenBack given_back{cuda};
  {
    const gpu::Reducer reducer(gpu::Device::open(cuda.table(), 0));
    CHECK(cuda.copies.streams() > 0);
  }
  CHECK(eventually([&] {
    return cuda.copies.streams() == 0 && cuda.copies.events() == 0 && cuda.modules == 0;
  }));
}

}  // namespace
}  // namespace zerohop::testing
