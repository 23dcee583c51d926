// Mirrors of notes in GPU memory, and their accessibility to other GPUs of the process.
#include <doctest/doctest.h>

#include <string>

#include "base/error.hpp"
#include "engine/stream/note_mirrors.hpp"
#include "fake_cuda.hpp"

namespace zerohop::engine {
namespace {

using testing::FakeCuda;

struct Mirrors {
  FakeCuda cuda;
  testing::AllGivenBack given_back{cuda};
  const int gpus = (cuda.gpus = 2);
  std::shared_ptr<const gpu::Device> first = gpu::Device::open(cuda.table(), 0);
  std::shared_ptr<const gpu::Device> second = gpu::Device::open(cuda.table(), 1);
  NoteMirrors mirrors{std::make_shared<Board>(), std::make_shared<shm::Exposures>()};

  std::string refusal() {
    try {
      (void)mirrors.of(second);
      return "";
    } catch (const RouteUnavailable& error) {
      return error.what();
    }
  }
};

TEST_CASE_FIXTURE(Mirrors, "another GPU reaches them where both have native atomics") {
  mirrors.settle(first);
  const auto own = mirrors.of(first);
  REQUIRE(own.address != 0);
  CHECK(mirrors.of(second).address == own.address);
  mirrors.settle(second);  // settled once and for all
  CHECK(mirrors.where() == "in the memory of cuda:0");
}

TEST_CASE_FIXTURE(Mirrors, "a GPU that cannot is refused with the reason") {
  mirrors.settle(first);
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
  CHECK(mirrors.of(first).address != 0);
}

TEST_CASE_FIXTURE(Mirrors, "where there is no room they are given up once") {
  cuda.no_memory = true;
  mirrors.settle(first);
  cuda.no_memory = false;
  mirrors.settle(first);
  CHECK(mirrors.of(first).address == 0);
  CHECK(mirrors.where().find("in host memory (cuMemAlloc") == 0);
}

}  // namespace
}  // namespace zerohop::engine
