// Freeing GPU memory on a few threads, and postponing it: also in a child of fork().
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/text_file.hpp"
#include "eventually.hpp"
#include "fake_cuda.hpp"
#include "gpu/apart.hpp"
#include "no_threads.hpp"

namespace zerohop::gpu {
namespace {

using testing::eventually;
using testing::NoThreads;

// Threads of this process with that name.
int threads_named(const std::string& name) {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string comm = task.path() / "comm";
    const TextFile file = open_text(comm.c_str());
    char line[32] = "";
    if (file && std::fgets(line, sizeof line, file.get()) && line == name + "\n") ++count;
  }
  return count;
}

struct Busy {  // GPUs that run a kernel until told to stop
  testing::FakeCuda cuda;
  testing::AllGivenBack given_back{cuda};
  std::vector<std::shared_ptr<const Device>> devices;
  Busy() {
    cuda.gpus = 2;
    for (const int ordinal : {0, 1}) devices.push_back(Device::open(cuda.table(), ordinal));
    cuda.busy = true;
  }
  void end() {
    cuda.busy = false;
    cuda.busy.notify_all();
  }
};

int status_of(pid_t child) {
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("all that one GPU gives back has one thread, in its order") {
  std::promise<void> begun;
  std::promise<void> go_on;
  std::vector<int> order;
  std::atomic<int> done{0};
  run_apart(0, [&] {
    begun.set_value();
    go_on.get_future().wait();
  });
  begun.get_future().wait();
  for (int i = 0; i < 100; ++i) {
    run_apart(0, [&, i] {
      order.push_back(i);
      ++done;
    });
  }
  CHECK(threads_named("zh-free") == 1);
  go_on.set_value();
  CHECK(eventually([&] { return done == 100; }));
  for (int i = 0; i < 100; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  CHECK(eventually([] { return threads_named("zh-free") == 0; }));
}

TEST_CASE_FIXTURE(Busy, "a GPU that is waited for holds up nothing else") {
  std::atomic<int> waited{0};
  run_when_idle(devices[0], [&] { ++waited; });
  std::atomic<int> others{0};
  run_apart(0, [&] { ++others; });
  run_apart(1, [&] { ++others; });
  CHECK(eventually([&] { return others == 2; }));
  CHECK(waited == 0);
  end();
  CHECK(eventually([&] { return waited == 1; }));
}

TEST_CASE_FIXTURE(Busy, "one wait for a GPU serves all waiting work") {
  std::atomic<int> waited{0};
  const int calls = cuda.calls;
  run_when_idle(devices[0], [&] { ++waited; });
  CHECK(eventually([&] { return cuda.calls > calls; }));  // the first wait may have begun
  for (int i = 0; i < 100; ++i) run_when_idle(devices[0], [&] { ++waited; });
  CHECK(eventually([] { return threads_named("zh-free-idle") == 1; }));
  end();
  CHECK(eventually([&] { return waited == 101; }));
  CHECK(cuda.synchronized <= 2);
}

TEST_CASE("postponed work runs even where no thread can be started") {
  const NoThreads none;
  int given = 0;
  auto waits = std::make_unique<const KernelsWait>();
  give_back_apart(0, [&given] { ++given; });
  give_back(0, [&given] { ++given; });
  CHECK(given == 0);
  waits.reset();
  CHECK(given == 2);
}

// The parent's threads and CUDA do not exist here.
TEST_CASE("a child of fork() gives back nothing of its parent's, and its own at once") {
  std::atomic<int> parents{0};
  auto waits = std::make_unique<const KernelsWait>();
  give_back_apart(0, [&parents] { ++parents; });
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const NoThreads none;  // all work is done when the call returns
    int own = 0;
    give_back_apart(0, [&own] { ++own; });
    const bool waited_for_nobody = own == 1;
    {
      const KernelsWait here;
      waits.reset();
      give_back_apart(0, [&own] { ++own; });
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
