// Twins of notes in the memory of a GPU, and what other GPUs of the process reach of them.
#include <doctest/doctest.h>

#include <string>

#include "base/error.hpp"
#include "engine/stream/note_twins.hpp"
#include "fake_cuda.hpp"

namespace zerohop::engine {
namespace {

using testing::FakeCuda;

struct Twins {
  FakeCuda cuda;
  testing::AllGivenBack given_back{cuda};
  const int gpus = (cuda.gpus = 2);
  std::shared_ptr<const gpu::Device> first = gpu::Device::open(cuda.table(), 0);
  std::shared_ptr<const gpu::Device> second = gpu::Device::open(cuda.table(), 1);
  NoteTwins twins{std::make_shared<Board>(), std::make_shared<ipc::Exposures>()};

  std::string refusal() {
    try {
      (void)twins.of(second);
      return "";
    } catch (const RouteUnavailable& error) {
      return error.what();
    }
  }
};

TEST_CASE_FIXTURE(Twins, "another GPU reaches them where both have native atomics") {
  twins.settle(first);
  const auto own = twins.of(first);
  REQUIRE(own.address != 0);
  CHECK(twins.of(second).address == own.address);
  twins.settle(second);  // once and for all
  CHECK(twins.where() == "in the memory of cuda:0");
}

TEST_CASE_FIXTURE(Twins, "a GPU that cannot is refused with the reason") {
  twins.settle(first);
  SUBCASE("without native atomics") {
    cuda.native_atomics = false;
    const std::string reason = refusal();
    CHECK(reason.find("cuda:1 does not reach cuda:0") == 0);
    CHECK(reason.find("there are no native atomics between the two") != std::string::npos);
    CHECK(reason.find("wait for them on the CPU") != std::string::npos);
  }
  SUBCASE("without peer access") {
    cuda.refuses_peers = true;
    CHECK(refusal().find("cuCtxEnablePeerAccess") != std::string::npos);
  }
  CHECK(twins.of(first).address != 0);
}

TEST_CASE_FIXTURE(Twins, "where there is no room they are given up once") {
  cuda.no_memory = true;
  twins.settle(first);
  cuda.no_memory = false;
  twins.settle(first);
  CHECK(twins.of(first).address == 0);
  CHECK(twins.where().find("in host memory (cuMemAlloc") == 0);
}

}  // namespace
}  // namespace zerohop::engine
