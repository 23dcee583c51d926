// What this machine limits: the messages about reached limits, and buffers that have no room.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "base/buffer.hpp"
#include "base/error.hpp"
#include "base/host_memory.hpp"
#include "base/scarcity.hpp"
#include "process.hpp"
#include "rdma/completion_queue.hpp"
#include "reported.hpp"
#include "softhca/device_faults.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::testing {
namespace {

TEST_CASE("the limit is stated in numbers, with the command that raises it") {
  SUBCASE("files") {
    const Lowered files(RLIMIT_NOFILE, 99);
    CHECK(contains(remedy_of(EMFILE), "99 open files"));
    CHECK(contains(remedy_of(EMFILE), "ulimit -n"));
  }
  SUBCASE("addresses") {
    const Lowered addresses(RLIMIT_AS, rlim_t{1} << 50);
    CHECK(contains(remedy_of(ENOMEM), "1125899906842624 bytes (RLIMIT_AS)"));
  }
  SUBCASE("the size of files") {
    const Lowered sizes(RLIMIT_FSIZE, 4096);
    CHECK(contains(remedy_of(EFBIG), "4096 bytes (RLIMIT_FSIZE)"));
  }
  SUBCASE("locked memory") {
    const Lowered locked(RLIMIT_MEMLOCK, 4096);
    CHECK(locked_memory_limit() == "4096 bytes");
  }
  SUBCASE("the host's files") { CHECK(contains(remedy_of(ENFILE), "fs.file-max")); }
  SUBCASE("space") { CHECK(contains(remedy_of(ENOSPC), "max_user_watches")); }
  CHECK(remedy_of(EIO) == "");
  CHECK(scarcity_message("it failed", EIO) == "it failed: Input/output error (errno 5)");
  CHECK(scarcity_message("it failed", EMFILE).starts_with("it failed: Too many open files (errno"));
}

// Runs as another user, as root is above the limit. 0: success.
int without_threads() {
  constexpr uid_t kNobodyElse = 54321;
  if (::geteuid() == 0 && ::setuid(kNobodyElse) != 0) return 1;
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_NPROC, &none) != 0) return 2;
  try {
    start_thread("zh-test", [] {}).join();
    return 3;
  } catch (const Error& error) {
    const bool reported = contains(error.what(), "the thread zh-test cannot be started") &&
                          contains(error.what(), "RLIMIT_NPROC");
    return error.code() == EAGAIN && reported ? 0 : 4;
  }
}

TEST_CASE("a thread that the system does not start is an Error") {
  CHECK(in_child(without_threads) == 0);
}

TEST_CASE("a thread has its name") {
  std::string name;
  start_thread("zh-test", [&] {
    std::getline(std::ifstream("/proc/thread-self/comm"), name);
  }).join();
  CHECK(name == "zh-test");
}

// Its queue pairs and memory regions: tests/contract/test_exhaustion.py.
TEST_CASE("a device that has no more completion queues is named with its limit") {
  const auto device = rdma::Device::open(softhca::verbs(), "soft0");
  const auto make = [&] { return rdma::CompletionQueue::create(device, 16); };
  softhca::set_faults(device->context(), softhca::Faults::parse("max_cq=1"));
  auto first = make();
  const auto error = thrown_by<VerbsError>([&] { (void)make(); });
  CHECK(error.code() == ENOMEM);
  CHECK(contains(error.what(), "soft0 (max_cq 1, its own or set by zh.Faults)"));
  first.reset();
  first = make();
  softhca::set_faults(device->context(), {});
  CHECK(make() != nullptr);
}

// --- buffers ---

TEST_CASE("a buffer is zeroed, page-aligned, writable and not inherited by other programs") {
  const Buffer buffer(10'000);
  CHECK(buffer.address() % static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) == 0);
  CHECK(std::all_of(buffer.data(), buffer.data() + buffer.nbytes(),
                    [](std::byte value) { return value == std::byte{0}; }));
  buffer.data()[9'999] = std::byte{7};
  CHECK((::fcntl(buffer.fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a second mapping of the descriptor sees the same bytes") {
  const Buffer buffer(4096);
  void* other = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, buffer.fd(), 0);
  REQUIRE(other != MAP_FAILED);
  buffer.data()[17] = std::byte{42};
  CHECK(static_cast<std::byte*>(other)[17] == std::byte{42});
  ::munmap(other, 4096);
}

TEST_CASE("a buffer of no bytes maps nothing") {
  const Buffer buffer(0);
  CHECK(buffer.data() == nullptr);
  CHECK(buffer.nbytes() == 0);
  CHECK(buffer.fd() == -1);
}

TEST_CASE("a buffer moves with its bytes") {
  Buffer first(4096);
  first.data()[0] = std::byte{1};
  const int fd = first.fd();
  Buffer second(std::move(first));
  CHECK(first.data() == nullptr);
  Buffer third(0);
  third = std::move(second);
  CHECK(third.data()[0] == std::byte{1});
  CHECK(third.fd() == fd);
}

TEST_CASE("what cannot be allocated is an error at once, with errno's number") {
  std::signal(SIGXFSZ, SIG_IGN);  // as Python does
  const Lowered sizes(RLIMIT_FSIZE, 1 << 20);
  CHECK(thrown_by<RegistrationError>([] { const Buffer buffer(2 << 20); }).code() == EFBIG);
  CHECK_THROWS_AS(Buffer(~std::uint64_t{0}), RegistrationError);
}

// --- the memory that is available ---

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
  std::signal(SIGXFSZ, SIG_IGN);
  const Lowered sizes(RLIMIT_FSIZE, 1 << 20);
  const auto error =
      thrown_by<RegistrationError>([] { const Buffer buffer(std::uint64_t{1} << 50); });
  CHECK(contains(error.what(), "bytes are available"));
  CHECK(error.code() == ENOMEM);
}

}  // namespace
}  // namespace zerohop::testing
