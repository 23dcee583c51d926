// Ranges as a profiler receives them: NVTX loads a library that the environment names, and calls
// it.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/nvtx.hpp"
#include "nvtx/listener.hpp"
#include "staged_couple.hpp"

namespace zerohop::testing {
namespace {

// Constructed before the tool is loaded: destroyed after it.
trace::Range left_open;

std::string tool_path() {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename("nvtx_listener.so");
}

// NVTX asks once, at its first call.
[[maybe_unused]] const int named = ::setenv("NVTX_INJECTION64_PATH", tool_path().c_str(), 1);

std::vector<NvtxRange> heard() {
  void* const library = ::dlopen(tool_path().c_str(), RTLD_LAZY | RTLD_NOLOAD);
  REQUIRE_MESSAGE(library != nullptr, ::dlerror());
  auto* const ranges = reinterpret_cast<NvtxRanges*>(::dlsym(library, "nvtx_ranges"));
  ::dlclose(library);  // NVTX keeps it
  REQUIRE_MESSAGE(static_cast<bool>(ranges), ::dlerror());
  std::vector<NvtxRange> all;
  ranges(all);
  return all;
}

TEST_CASE("a transfer is a range with a name, in a domain of its own, from its begin to its end") {
  CHECK(trace::has_nvtx());
  Couple couple;
  const Memory near = StagedCouple::host_array(couple.left, {1 << 20});
  const Memory far = StagedCouple::host_array(couple.right, {1 << 20});
  const std::size_t before = heard().size();
  StagedCouple::finish(write(*couple.to_right, near, far.remote()));
  const std::vector<NvtxRange> all = heard();
  REQUIRE(all.size() == before + 1);
  CHECK(all.back().domain == "zerohop");
  CHECK(all.back().name == "write 1048576 B to right by host");
  CHECK(all.back().payload == 1 << 20);
  CHECK(all.back().ends == 1);
}

TEST_CASE("what is still open when the process exits is not ended behind the tool's end") {
  trace::open();
  const pid_t child = ::fork();
  if (child == 0) {
    left_open.begin(*trace::tool(), "left open", 0);
    std::exit(heard().back().name == "left open" ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) != kCalledTooLate);
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace zerohop::testing
