// Which device an Endpoint gets, and why, among adapters of every kind; and what is asked of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <vector>

#include "couple.hpp"
#include "engine/core/device_choice.hpp"
#include "engine/memory/host_registrations.hpp"
#include "engine/memory/memory.hpp"
#include "engine/path/verbs/atomics.hpp"
#include "fake_verbs.hpp"
#include "rdma/queue_pair.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;

struct Adapters {
  FakeVerbs fake;
  Adapters() { fake.adapters.clear(); }

  FakeVerbs::Adapter& add(const std::string& name) {
    fake.adapters.push_back({.name = name, .ports = {fake.port}});
    return fake.adapters.back();
  }
  DeviceChoice choose(const std::string& name = "") {
    return choose_device(name, {}, preference, {fake.table(), ""});
  }
  DevicePreference preference;
  // For a requested device.
  std::string refusal(const std::string& name, int code) {
    const auto error = thrown_by<VerbsError>([&] { choose(name); });
    CHECK(error.code() == code);
    return error.what();
  }
};

TEST_CASE_FIXTURE(Adapters, "an adapter of another kind is refused as what it is") {
  auto& adapter = add("usnic0");
  adapter.transport = IBV_TRANSPORT_USNIC;
  SUBCASE("with a GID") {
    CHECK(contains(refusal("usnic0", ENODEV), "'usnic0' cannot be used: it speaks neither"));
  }
  SUBCASE("without") {
    adapter.ports[0].gid_tbl_len = 0;
    CHECK(contains(refusal("usnic0", ENODATA), "usnic0 speaks neither InfiniBand, RoCE nor iWARP"));
  }
  CHECK(contains(choose().reason, "usnic0 speaks neither InfiniBand, RoCE nor iWARP"));
}

TEST_CASE_FIXTURE(Adapters, "a port that is down is refused for that, with or without a GID") {
  auto& port = add("mlx5_0").ports[0];
  port.state = IBV_PORT_DOWN;
  CHECK(contains(refusal("mlx5_0", ENODEV), "it has port 1 in state DOWN: bring its network"));
  port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  CHECK(contains(refusal("mlx5_0", ENODEV), "start a subnet manager"));
  port.gid_tbl_len = 0;
  CHECK(contains(refusal("mlx5_0", ENODATA), "mlx5_0 has port 1 in state DOWN: connect the cable"));
}

TEST_CASE_FIXTURE(Adapters, "a device that cannot be opened names its file and the container") {
  auto& adapter = add("mlx5_0");
  for (const int error : {EPERM, EACCES, ENOENT}) {
    adapter.open_error = error;
    const std::string text = refusal("mlx5_0", error);
    CHECK(contains(text, "ibv_open_device of mlx5_0"));
    CHECK(contains(text, "/dev/infiniband/uverbs*"));
    CHECK(contains(text, "in a container"));
  }
}

TEST_CASE_FIXTURE(Adapters, "the first adapter that can serve is chosen") {
  add("mlx5_0").ports[0].state = IBV_PORT_DOWN;
  add("mlx5_1").open_error = EPERM;
  add("mlx5_2");
  add("mlx5_3");
  const DeviceChoice choice = choose();
  CHECK(choice.device->name() == "mlx5_2");
  CHECK(choice.reason == "it is the first adapter that can serve");
}

TEST_CASE_FIXTURE(Adapters, "adapters that are preferred come first, in their order") {
  for (const char* name : {"mlx5_0", "mlx5_1", "mlx5_2"}) add(name);
  preference = {{"mlx5_9", "mlx5_2", "mlx5_1"}, "it is nearest to cuda:0"};
  CHECK(choose().device->name() == "mlx5_2");
  CHECK(choose().reason == "it is nearest to cuda:0");
  fake.adapters[2].ports[0].state = IBV_PORT_DOWN;
  CHECK(choose().device->name() == "mlx5_1");
  fake.adapters[1].open_error = EPERM;
  CHECK(choose().device->name() == "mlx5_0");
  CHECK(choose().reason == "it is the first adapter that can serve");
  CHECK(choose("mlx5_0").reason == "it was asked for");
}

TEST_CASE_FIXTURE(Adapters, "where no adapter can serve soft0 does, with the reason of each") {
  CHECK(choose().reason == "no RDMA adapter can serve (this machine has none)");
  add("mlx5_0").ports[0].state = IBV_PORT_DOWN;
  add("mlx5_1").open_error = EACCES;
  add("irdma0").transport = IBV_TRANSPORT_IWARP;
  add("rxe0").ports[0].gid_tbl_len = 0;
  const DeviceChoice choice = choose();
  CHECK(choice.device->name() == "soft0");
  CHECK(contains(choice.reason, "mlx5_0 has port 1 in state DOWN"));
  CHECK(contains(choice.reason, "ibv_open_device of mlx5_1"));
  CHECK(contains(choice.reason, "irdma0 has a network interface without an IP address"));
  CHECK(contains(choice.reason, "rxe0 port 1 has no RoCE v2 GID"));
}

TEST_CASE("without libibverbs soft0 serves, and an adapter is refused with the reason") {
  const driver::VerbsLibrary none{nullptr, "libibverbs.so.1 cannot be loaded"};
  CHECK(choose_device("", {}, {}, none).device->name() == "soft0");
  CHECK_THROWS_WITH_AS(choose_device("mlx5_0", {}, {}, none),
                       "cannot open device 'mlx5_0': libibverbs.so.1 cannot be loaded; or use the "
                       "software HCA, device='soft0'",
                       VerbsError);
}

// --- a device without atomics is not asked for them, and callers that want them get a clear error
// ---

constexpr int kAtomic = IBV_ACCESS_REMOTE_ATOMIC;

struct Word {
  FakeVerbs fake;
  std::uint64_t word = 0;

  std::shared_ptr<rdma::Device> open() { return rdma::Device::open(fake.table(), "fake0"); }
  std::shared_ptr<Rail> make_rail(RailIndex index, ibv_atomic_cap atomics) {
    fake.device.atomic_cap = atomics;
    return std::make_shared<Rail>(index, rdma::ProtectionDomain::create(open()), "it is a fake");
  }

  RemoteMemory register_word(bool writable = true) {
    return register_word({make_rail(0, fake.device.atomic_cap)}, writable);
  }
  RemoteMemory register_word(Rails rails, bool writable = true) {
    HostRegistrations registrations(std::move(rails), nullptr, std::make_shared<LiveRegions>());
    const auto address = reinterpret_cast<std::uint64_t>(&word);
    auto regions = registrations.find_or_create({address, address + 8}, writable, true);
    const std::int64_t one = 1;
    const Layout layout = Layout::contiguous(address, {kDTypeUInt, 64, 1}, {&one, 1});
    auto registration = std::make_shared<const Registration>(std::move(regions), nullptr);
    return Memory({}, layout, std::move(registration), {.writable = writable, .choice = nullptr})
        .remote();
  }
  unsigned access_of_queue_pair() {
    const auto domain = rdma::ProtectionDomain::create(open());
    const auto queue = rdma::CompletionQueue::create(open(), 16);
    rdma::QueuePair::create(domain, queue, queue)->to_init();
    return fake.transitions.back().first.qp_access_flags;
  }
  std::string refusal(const RemoteMemory& memory) {
    return message_of<RouteUnavailable>(
        [&] { check_atomics(*make_rail(0, fake.device.atomic_cap), memory); });
  }
};

TEST_CASE_FIXTURE(Word, "a device with atomics is asked for them") {
  const RemoteMemory memory = register_word();
  CHECK(memory.access == (kRemoteRead | kRemoteWrite));
  CHECK((fake.registered_access & kAtomic) != 0);
  CHECK((access_of_queue_pair() & kAtomic) != 0);
  CHECK(refusal(memory) == "nothing was thrown");
}

TEST_CASE_FIXTURE(Word, "a device without atomics registers and connects without them") {
  fake.device.atomic_cap = IBV_ATOMIC_NONE;
  const RemoteMemory memory = register_word();
  CHECK((fake.registered_access & kAtomic) == 0);
  CHECK((fake.registered_access & IBV_ACCESS_REMOTE_WRITE) != 0);
  CHECK((access_of_queue_pair() & kAtomic) == 0);
  CHECK((access_of_queue_pair() & IBV_ACCESS_REMOTE_WRITE) != 0);
  CHECK((memory.access & kRemoteNoAtomics) != 0);
  CHECK((RemoteMemory::from_bytes(memory.to_bytes()).access & kRemoteNoAtomics) != 0);
}

TEST_CASE_FIXTURE(Word, "atomics are refused whichever of the two devices has none") {
  const RemoteMemory with_atomics = register_word();
  fake.device.atomic_cap = IBV_ATOMIC_NONE;
  const RemoteMemory without = register_word();
  CHECK(contains(refusal(with_atomics), "device fake0 has none (atomic_cap is NONE)"));
  fake.device.atomic_cap = IBV_ATOMIC_HCA;
  CHECK(contains(refusal(without), "the peer's device has none (atomic_cap is NONE)"));
  CHECK_THROWS_AS(
      check_atomics(*make_rail(0, fake.device.atomic_cap), register_word(/*writable=*/false)),
      std::invalid_argument);
}

TEST_CASE_FIXTURE(Word, "of several rails the first decides, as atomics take that one") {
  const RemoteMemory first =
      register_word({make_rail(0, IBV_ATOMIC_HCA), make_rail(1, IBV_ATOMIC_NONE)});
  CHECK((fake.registered_access & kAtomic) == 0);  // of the second
  CHECK((first.access & kRemoteNoAtomics) == 0);
  const RemoteMemory second =
      register_word({make_rail(0, IBV_ATOMIC_NONE), make_rail(1, IBV_ATOMIC_HCA)});
  CHECK((fake.registered_access & kAtomic) != 0);
  CHECK((second.access & kRemoteNoAtomics) != 0);
}

// --- settings are cached: no device is queried while its Peer's lock is held ---

std::atomic<int> questions{0};

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  ++questions;
  return softhca::verbs()->query_port(context, port, attributes);
}

std::vector<DeviceChoice> counting_device() {
  auto table = std::make_shared<driver::Verbs>(*softhca::verbs());
  table->query_port = query_port;
  return {{rdma::Device::open(std::move(table), "soft0"), "a test says so"}};
}

EndpointOptions counted(const char* name) {
  EndpointOptions chosen = options(name);
  chosen.open_devices = counting_device;
  return chosen;
}

TEST_CASE("settings and terms of a queue pair are returned without a query to its device") {
  Endpoint left(counted("left"));
  Endpoint right(counted("right"));
  const auto to_right = left.connect(right.address().to_bytes(), soon());
  const auto path = to_right->rails().at(0);
  const int before = questions;
  CHECK(before > 0);
  const Settings all = path->settings();
  CHECK(path->terms().queue_pair.number == path->queue_pair_number());
  CHECK(questions == before);
  CHECK(std::ranges::any_of(all, [](const auto& one) {
    return one.first == "link_layer" && one.second == Setting(std::string("Ethernet"));
  }));
}

}  // namespace
}  // namespace zerohop::testing
