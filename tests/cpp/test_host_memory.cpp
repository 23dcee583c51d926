#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "base/buffer.hpp"
#include "base/error.hpp"
#include "base/host_memory.hpp"

namespace zerohop {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A folder that serves as the file system root.
class Root {
 public:
  Root() {
    std::string name = (std::filesystem::temp_directory_path() / "rootXXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Root() { std::filesystem::remove_all(path_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  Root& file(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
    return *this;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

Root& machine(Root& root) {
  return root.file("proc/meminfo", "MemTotal:  8388608 kB\nMemAvailable:   4194304 kB\n");
}

TEST_CASE("without a control group it is what the kernel calls available") {
  Root root;
  CHECK(available_memory(machine(root).path()) == 4 * kGiB);
}

TEST_CASE("a control group, its own or one above, leaves less") {
  Root root;
  machine(root)
      .file("proc/self/cgroup", "0::/job/task\n")
      .file("sys/fs/cgroup/job/task/memory.max", "max\n")
      .file("sys/fs/cgroup/job/task/memory.current", "99\n")
      .file("sys/fs/cgroup/job/memory.max", std::to_string(2 * kGiB))
      .file("sys/fs/cgroup/job/memory.current", std::to_string(kGiB));
  CHECK(available_memory(root.path()) == kGiB);
  root.file("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 1048576\n");
  CHECK(available_memory(root.path()) == kGiB + (1 << 20));
  root.file("sys/fs/cgroup/job/memory.current", std::to_string(3 * kGiB));
  CHECK(available_memory(root.path()) == 0);
  root.file("sys/fs/cgroup/memory.max", "17\n").file("sys/fs/cgroup/memory.current", "4\n");
  root.file("sys/fs/cgroup/job/memory.max", "max\n");
  CHECK(available_memory(root.path()) == 13);
}

TEST_CASE("without values from the kernel nothing is limited") {
  Root root;
  CHECK(available_memory(root.path()) == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("a buffer that this machine has no memory for is refused before a page is taken") {
  // If the check were missing, this limit would stop the allocation instead of the machine.
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{1 << 20, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  ::signal(SIGXFSZ, SIG_IGN);
  try {
    const Buffer buffer(std::uint64_t{1} << 50);
    FAIL("1 PiB was allocated");
  } catch (const RegistrationError& error) {
    CHECK(std::string(error.what()).find("bytes are available") != std::string::npos);
    CHECK(error.code() == ENOMEM);
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
}

}  // namespace
}  // namespace zerohop
