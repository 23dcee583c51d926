// Ranges as a profiler receives them: NVTX loads a library that the environment names, and calls
// it.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "base/nvtx.hpp"
#include "gpu_couple.hpp"
#include "nvtx/listener.hpp"
#include "process.hpp"

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
  const auto [near, far] = couple.host_arrays({1 << 20});
  const std::size_t before = heard().size();
  finish(write(*couple.to_right, near, far.remote()));
  const std::vector<NvtxRange> all = heard();
  REQUIRE(all.size() == before + 1);
  CHECK(all.back().domain == "zerohop");
  CHECK(all.back().name == "write 1048576 B to right by host");
  CHECK(all.back().payload == 1 << 20);
  CHECK(all.back().ends == 1);
}

TEST_CASE("what is still open when the process exits is not ended behind the tool's end") {
  trace::open();
  const int code = in_child([] {
    left_open.begin(*trace::tool(), "left open", 0);
    std::exit(heard().back().name == "left open" ? 0 : 1);
    return 1;
  });
  CHECK(code != kCalledTooLate);
  CHECK(code == 0);
}

}  // namespace
}  // namespace zerohop::testing
