// Every call of a complete set-up fails once: a typed error is raised and nothing leaks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/report.hpp"
#include "fake_verbs.hpp"
#include "rdma/memory_region.hpp"
#include "rdma/queue_pair.hpp"

namespace zerohop::rdma {
namespace {

using testing::FakeVerbs;

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

struct Setup {
  std::shared_ptr<Device> device;
  std::shared_ptr<ProtectionDomain> domain;
  std::shared_ptr<MemoryRegion> region;
  std::shared_ptr<CompletionQueue> queue;
  std::unique_ptr<QueuePair> queue_pair;
};

Setup set_up(const FakeVerbs& fake) {
  static std::byte memory[64];
  Setup setup;
  setup.device = Device::open(fake.table(), "fake0");
  setup.domain = ProtectionDomain::create(setup.device);
  setup.region = MemoryRegion::create(setup.domain, memory, sizeof memory, kAccess);
  setup.queue = CompletionQueue::create(setup.device, 16);
  setup.queue->resize(32);
  auto receives = SharedReceiveQueue::create(setup.domain, 8);
  setup.queue_pair =
      QueuePair::create(setup.domain, setup.queue, setup.queue, {}, std::move(receives));
  setup.queue_pair->connect(setup.queue_pair->address());
  const ibv_qp_state state = setup.queue_pair->state();  // may throw, which CHECK would swallow
  CHECK(state == IBV_QPS_RTS);
  return setup;
}

enum class Outcome { passed, verbs_error, registration_error };

Outcome outcome_of(const FakeVerbs& fake) {
  try {
    set_up(fake);
    return Outcome::passed;
  } catch (const VerbsError& error) {
    // A device that answers ENOSYS has no devices at all: then the name is wrong. EINVAL for a GID
    // means one of another network namespace: then there is none to choose from.
    int code = fake.error_number == ENOSYS ? ENODEV : fake.error_number;
    if (fake.failed == "query_gid" && fake.error_number == EINVAL) code = ENODATA;
    CHECK(error.code() == code);
    return Outcome::verbs_error;
  } catch (const RegistrationError& error) {
    CHECK(error.code() == fake.error_number);
    return Outcome::registration_error;
  }
}

// The required outcome when `function` fails.
Outcome expected(const std::string& function, int error_number) {
  if (function == "reg_mr") return Outcome::registration_error;
  const bool asks_again = error_number == EINVAL || error_number == ENOMEM;
  if (function == "create_qp" && asks_again) return Outcome::passed;  // with less inline data
  if (function == "query_gid_table") return Outcome::passed;          // then each entry is queried
  return Outcome::verbs_error;
}

void fail_every_call(int error_number) {
  CAPTURE(error_number);
  std::vector<std::string> failed;
  for (int n = 1;; ++n) {
    CAPTURE(n);
    FakeVerbs fake;
    fake.fail_at = n;
    fake.error_number = error_number;
    const Outcome outcome = outcome_of(fake);
    CHECK(fake.live() == 0);
    CHECK(fake.violations() == std::vector<std::string>{});
    if (fake.failed.empty()) {  // call n was never reached: the set-up is shorter
      CHECK(outcome == Outcome::passed);
      break;
    }
    CAPTURE(fake.failed);
    CHECK(outcome == expected(fake.failed, error_number));
    failed.push_back(fake.failed);
  }
  for (const char* function :
       {"get_device_list", "open_device", "query_device", "query_gid_table", "query_gid",
        "alloc_pd", "reg_mr", "create_comp_channel", "create_cq", "resize_cq", "create_srq",
        "create_qp", "query_port", "modify_qp", "query_qp"}) {
    CAPTURE(function);
    CHECK(std::find(failed.begin(), failed.end(), function) != failed.end());
  }
}

TEST_CASE("any call of the set-up may fail with EIO") { fail_every_call(EIO); }
TEST_CASE("any call of the set-up may fail with ENOMEM") { fail_every_call(ENOMEM); }
TEST_CASE("any call of the set-up may fail with EINVAL") { fail_every_call(EINVAL); }

TEST_CASE("a kernel without RDMA support has no devices") {
  FakeVerbs fake;
  fake.fail_at = 1;
  fake.error_number = ENOSYS;
  CHECK(Device::names(*fake.table()).empty());
  fake.calls = 0;
  CHECK(outcome_of(fake) == Outcome::verbs_error);
}

std::vector<std::string> reported;
void keep(std::string_view message) noexcept { reported.emplace_back(message); }

TEST_CASE("destroying in any order frees children first and reports what fails") {
  FakeVerbs fake;
  fake.fail_destroy = true;
  reported.clear();
  const ReportSink former = set_report_sink(keep);
  {
    Setup setup = set_up(fake);
    setup.device.reset();
    setup.domain.reset();
    setup.queue.reset();
    CHECK(fake.live() == 7);  // the queue pair and the region keep everything alive
    setup.queue_pair.reset();
    CHECK(fake.live() == 3);  // context, domain, region
  }
  set_report_sink(former);
  CHECK(fake.live() == 0);
  CHECK(fake.violations() == std::vector<std::string>{});
  REQUIRE(reported.size() == 7);
  CHECK(reported[0].starts_with("ibv_destroy_qp failed with errno " + std::to_string(EBUSY)));
  CHECK(reported[6].starts_with("ibv_close_device"));
}

}  // namespace
}  // namespace zerohop::rdma
