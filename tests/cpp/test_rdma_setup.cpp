// Setting up the objects of verbs: which port and GID a device uses, and what happens when any call
// fails.
#include <arpa/inet.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "fake_verbs.hpp"
#include "rdma/memory_region.hpp"
#include "rdma/port_choice.hpp"
#include "rdma/queue_pair.hpp"
#include "reported.hpp"

namespace zerohop::testing {
namespace {

using namespace rdma;

// --- ports and GIDs ---

ibv_gid gid_of(const char* text) {
  ibv_gid gid{};
  if (::inet_pton(AF_INET6, text, gid.raw) != 1) throw std::invalid_argument(text);
  return gid;
}

Gid entry(int index, GidKind kind, const char* text) {
  return {.index = index, .kind = kind, .netdev = 2, .value = gid_of(text)};
}

const std::vector<Gid> kRoce{entry(0, GidKind::roce_v1, "fe80::1"),
                             entry(1, GidKind::roce_v2, "fe80::1"),
                             entry(2, GidKind::roce_v2, "::ffff:169.254.1.1"),
                             entry(3, GidKind::roce_v1, "::ffff:10.0.0.1"),
                             entry(4, GidKind::roce_v2, "2001:db8::1"),
                             entry(5, GidKind::roce_v2, "::ffff:10.0.0.1"),
                             entry(6, GidKind::roce_v2, "::ffff:10.0.0.2")};

template <typename Call>
std::string refusal(Call call, int code) {
  const auto error = thrown_by<VerbsError>(call);
  CHECK(error.code() == code);
  return error.what();
}

TEST_CASE("on Ethernet a RoCE v2 GID of an IPv4 address comes first, then what can be routed") {
  std::vector<Gid> gids = kRoce;
  for (const int expected : {5, 6, 4, 1}) {
    CHECK(find_gid(gids, true, {})->index == expected);
    std::erase_if(gids, [&](const Gid& gid) { return gid.index == expected; });
  }
}

TEST_CASE("RoCE v1 is taken only when it is asked for, by version or by index") {
  const std::vector<Gid> only_v1{entry(0, GidKind::roce_v1, "fe80::1")};
  CHECK(!find_gid(only_v1, true, {}));
  const std::string text = lack_of_gid(only_v1, true, {});
  CHECK(contains(text, "has no RoCE v2 GID"));
  CHECK(contains(text, "fe80::1 (RoCE v1)"));
  CHECK(contains(text, "IP address"));
  CHECK(find_gid(only_v1, true, {.roce = GidKind::roce_v1})->index == 0);
  CHECK(find_gid(only_v1, true, {.gid_index = 0})->index == 0);
  CHECK(find_gid(kRoce, true, {.roce = GidKind::roce_v1})->index == 3);
}

TEST_CASE("a GID index that is not in use is refused with those that are") {
  CHECK(!find_gid(kRoce, true, {.gid_index = 9}));
  const std::string text = lack_of_gid(kRoce, true, {.gid_index = 9});
  CHECK(contains(text, "gid_index 9"));
  CHECK(contains(text, "5: ::ffff:10.0.0.1 (RoCE v2)"));
}

TEST_CASE("InfiniBand has GIDs of its own, and none without a subnet manager") {
  const std::vector<Gid> gids{entry(0, GidKind::infiniband, "fe80::2:c903:1:2")};
  CHECK(find_gid(gids, false, {})->index == 0);
  CHECK(!find_gid({}, false, {}));
  CHECK(contains(lack_of_gid({}, false, {}), "subnet manager"));
}

TEST_CASE(
    "loopback, and what reaches farther, comes before link-local, also of kinds not reported") {
  for (const GidKind kind : {GidKind::roce_v2, GidKind::unknown}) {
    for (const char* farther : {"::ffff:127.0.0.1", "::ffff:10.0.0.1"}) {
      const std::vector<Gid> gids{entry(0, kind, "fe80::1"), entry(1, kind, farther)};
      CHECK(find_gid(gids, true, {})->index == 1);
    }
  }
}

TEST_CASE("entries that a queue pair cannot name are passed over") {
  std::vector<Gid> gids{entry(256, GidKind::roce_v2, "::ffff:10.0.0.1"),
                        entry(255, GidKind::roce_v2, "fe80::1")};
  CHECK(find_gid(gids, true, {})->index == 255);
  CHECK(!find_gid(gids, true, {.gid_index = 256}));
  CHECK(contains(lack_of_gid(gids, true, {.gid_index = 256}), "entries 0 to 255 only"));
  gids.pop_back();
  CHECK(!find_gid(gids, true, {}));
  CHECK(contains(lack_of_gid(gids, true, {}), "entries 0 to 255 only"));
}

TEST_CASE("all ports are tried, or the one that is asked for") {
  using Ports = std::vector<std::uint8_t>;
  CHECK(ports_to_try(3, {}, "mlx5_0") == Ports{1, 2, 3});
  CHECK(ports_to_try(3, {.port = 2}, "mlx5_0") == Ports{2});
  CHECK(contains(refusal([] { ports_to_try(3, {.port = 4}, "mlx5_0"); }, EINVAL),
                 "mlx5_0 has no port 4: ports are 1 to 3"));
  CHECK(contains(refusal([] { ports_to_try(0, {}, "mlx5_0"); }, EINVAL), "mlx5_0 has no port"));
}

// The choice for that wish among these ports.
struct TwoPorts {
  FakeVerbs fake;
  TwoPorts() { fake.adapters[0].ports = {fake.port, fake.port}; }
  ibv_port_attr& port(std::size_t number) { return fake.adapters[0].ports.at(number - 1); }
  std::shared_ptr<Device> open(const PortWish& wish = {}) {
    return Device::open(fake.table(), "fake0", wish);
  }
};

TEST_CASE_FIXTURE(TwoPorts, "the first port that is active and has a GID is chosen") {
  CHECK(open()->port() == 1);
  CHECK(open({.port = 2})->port() == 2);
  SUBCASE("port 1 is down") { port(1).state = IBV_PORT_DOWN; }
  SUBCASE("port 1 has no GID") { port(1).gid_tbl_len = 0; }
  CHECK(open()->port() == 2);
  CHECK(open()->obstacle() == "");
}

TEST_CASE_FIXTURE(TwoPorts, "a device of which no port serves is opened where it has a GID") {
  port(1).gid_tbl_len = 0;
  port(2).state = IBV_PORT_DOWN;
  const auto device = open();
  CHECK(device->port() == 2);
  CHECK(contains(device->obstacle(), "port 1 has no RoCE v2 GID: it has none"));
  CHECK(contains(device->obstacle(), "has port 2 in state DOWN: bring its network interface up"));
  CHECK(!contains(open({.port = 2})->obstacle(), "port 1"));
  port(2).gid_tbl_len = 0;
  const std::string text = refusal([&] { open(); }, ENODATA);
  CHECK(contains(text, "fake0 port 1 has no RoCE v2 GID"));
  CHECK(contains(text, "has port 2 in state DOWN"));
}

TEST_CASE("a device takes the GIDs of its own port from the table of all ports") {
  FakeVerbs fake;
  fake.device.phys_port_cnt = 2;
  fake.port.gid_tbl_len = 4;
  fake.port.link_layer = IBV_LINK_LAYER_ETHERNET;
  const auto v2 = [](std::uint32_t port, std::uint32_t index, const char* text) {
    return ibv_gid_entry{.gid = gid_of(text),
                         .gid_index = index,
                         .port_num = port,
                         .gid_type = IBV_GID_TYPE_ROCE_V2,
                         .ndev_ifindex = 7};
  };
  fake.gid_table = {v2(1, 3, "::ffff:10.0.0.1"), v2(2, 1, "fe80::2"), v2(2, 2, "::ffff:10.0.1.1")};
  const auto device = Device::open(fake.table(), "fake0", {.port = 2});
  CHECK(device->port() == 2);
  CHECK(device->gid().index == 2);
  CHECK(device->gid().kind == GidKind::roce_v2);
  CHECK(device->gid().netdev == 7);
  CHECK(gid_text(device->gid().value) == "::ffff:10.0.1.1");
}

TEST_CASE("both ends agree on the smaller MTU, and on reads that the other serves") {
  const QueuePairAddress a{.mtu = IBV_MTU_4096, .reads_in = 16, .reads_out = 1};
  const QueuePairAddress b{.mtu = IBV_MTU_1024, .reads_in = 4, .reads_out = 8};
  const Agreement agreed = agree(a, b);
  CHECK(agreed.mtu == IBV_MTU_1024);
  CHECK(agreed.reads_in == 8);
  CHECK(agreed.reads_out == 1);
}

// --- every call of a complete set-up fails once: a typed error is raised and nothing leaks ---

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

TEST_CASE("any call of the set-up may fail") {
  for (const int error_number : {EIO, ENOMEM, EINVAL}) fail_every_call(error_number);
}

TEST_CASE("a kernel without RDMA support has no devices") {
  FakeVerbs fake;
  fake.fail_at = 1;
  fake.error_number = ENOSYS;
  CHECK(Device::names(*fake.table()).empty());
  fake.calls = 0;
  CHECK(outcome_of(fake) == Outcome::verbs_error);
}

TEST_CASE("destroying in any order frees children first and reports what fails") {
  FakeVerbs fake;
  fake.fail_destroy = true;
  const Reports reports;
  {
    Setup setup = set_up(fake);
    setup.device.reset();
    setup.domain.reset();
    setup.queue.reset();
    CHECK(fake.live() == 7);  // the queue pair and the region keep everything alive
    setup.queue_pair.reset();
    CHECK(fake.live() == 3);  // context, domain, region
  }
  const auto reported = reports.all();
  CHECK(fake.live() == 0);
  CHECK(fake.violations() == std::vector<std::string>{});
  REQUIRE(reported.size() == 7);
  CHECK(reported[0].starts_with("ibv_destroy_qp failed with errno " + std::to_string(EBUSY)));
  CHECK(reported[6].starts_with("ibv_close_device"));
}

}  // namespace
}  // namespace zerohop::testing
