// Work on threads of its own, and what is put off: in a child of fork(), too.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "eventually.hpp"
#include "gpu/apart.hpp"
#include "no_threads.hpp"

namespace zerohop::gpu {
namespace {

using testing::eventually;
using testing::NoThreads;

int status_of(pid_t child) {
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("what is put off is given back where no thread is to be had, too") {
  const NoThreads none;
  int given = 0;
  auto waits = std::make_unique<const KernelsWait>();
  give_back_apart([&given] { ++given; });
  give_back([&given] { ++given; });
  CHECK(given == 0);
  waits.reset();
  CHECK(given == 2);
}

// Its threads and its CUDA are not there.
TEST_CASE("a child of fork() gives back nothing of its parent's, and its own at once") {
  std::atomic<int> parents{0};
  auto waits = std::make_unique<const KernelsWait>();
  give_back_apart([&parents] { ++parents; });
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const NoThreads none;  // what it does it has done when the call returns
    int own = 0;
    give_back_apart([&own] { ++own; });
    const bool waited_for_nobody = own == 1;
    {
      const KernelsWait here;
      waits.reset();
      give_back_apart([&own] { ++own; });
    }
    ::_exit((waited_for_nobody ? 0 : 1) + (own == 2 ? 0 : 2) + (parents == 0 ? 0 : 4));
  }
  CHECK(status_of(child) == 0);
  CHECK(parents == 0);
  waits.reset();
  CHECK(eventually([&] { return parents == 1; }));
}

}  // namespace
}  // namespace zerohop::gpu
