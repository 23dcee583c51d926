// The messages about reached limits, and that the same call works once there is room again.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/scarcity.hpp"
#include "rdma/completion_queue.hpp"
#include "rdma/memory_region.hpp"
#include "rdma/queue_pair.hpp"
#include "softhca/device_faults.hpp"
#include "softhca/softhca.hpp"

namespace zerohop {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Lowers a limit of this process for a scope.
class Lowered {
 public:
  Lowered(__rlimit_resource_t resource, rlim_t soft) : resource_(resource) {
    REQUIRE(::getrlimit(resource, &before_) == 0);
    const rlimit lower{soft, before_.rlim_max};
    REQUIRE(::setrlimit(resource, &lower) == 0);
  }
  ~Lowered() { ::setrlimit(resource_, &before_); }
  Lowered(const Lowered&) = delete;
  Lowered& operator=(const Lowered&) = delete;

 private:
  __rlimit_resource_t resource_;
  rlimit before_{};
};

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
    const bool told = contains(error.what(), "the thread zh-test cannot be started") &&
                      contains(error.what(), "RLIMIT_NPROC");
    return error.code() == EAGAIN && told ? 0 : 4;
  }
}

TEST_CASE("a thread that the system does not start is an Error") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(without_threads());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a thread has its name") {
  std::string name;
  start_thread("zh-test", [&] {
    std::getline(std::ifstream("/proc/thread-self/comm"), name);
  }).join();
  CHECK(name == "zh-test");
}

// A soft device with chosen limits.
struct Limited {
  std::shared_ptr<rdma::Device> device = rdma::Device::open(softhca::verbs(), "soft0");
  std::shared_ptr<rdma::ProtectionDomain> domain = rdma::ProtectionDomain::create(device);
  std::shared_ptr<rdma::CompletionQueue> queue = rdma::CompletionQueue::create(device, 16);
  std::vector<std::byte> bytes = std::vector<std::byte>(64);

  void limit(const char* words) const {
    softhca::set_faults(device->context(), softhca::Faults::parse(words));
  }
  auto queue_pair() const { return rdma::QueuePair::create(domain, queue, queue); }
  auto completion_queue() const { return rdma::CompletionQueue::create(device, 16); }
  auto region() { return rdma::MemoryRegion::create(domain, bytes.data(), bytes.size(), 0); }
};

// The second is refused; it works when the first is gone, and when the limit is.
template <typename Failure, typename Make>
void check_limit(const Limited& limited, const char* words, const char* told, Make make) {
  limited.limit(words);
  auto first = make();
  try {
    (void)make();
    FAIL("there was no limit");
  } catch (const Failure& error) {
    CHECK(error.code() == ENOMEM);
    CHECK_MESSAGE(contains(error.what(), told), error.what());
  }
  first.reset();
  first = make();
  limited.limit("");
  CHECK(make() != nullptr);
}

TEST_CASE("a device that has no more of something is named with its limit") {
  Limited limited;
  SUBCASE("queue pairs") {
    check_limit<VerbsError>(limited, "max_qp=1", "soft0 (max_qp 1, its own or set by zh.Faults)",
                            [&] { return limited.queue_pair(); });
  }
  SUBCASE("completion queues") {  // one exists already
    check_limit<VerbsError>(limited, "max_cq=2", "soft0 (max_cq 2, its own or set by zh.Faults)",
                            [&] { return limited.completion_queue(); });
  }
  SUBCASE("memory regions") {
    check_limit<RegistrationError>(limited, "max_mr=1",
                                   "soft0 (max_mr 1, its own or set by zh.Faults)",
                                   [&] { return limited.region(); });
  }
}

}  // namespace
}  // namespace zerohop
