// Which device an Endpoint gets, and why, among adapters of every kind.
#include <doctest/doctest.h>

#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "engine/core/device_choice.hpp"
#include "fake_verbs.hpp"

namespace zerohop::engine {
namespace {

struct Fixture {
  testing::FakeVerbs fake;
  Fixture() { fake.adapters.clear(); }

  testing::FakeVerbs::Adapter& add(const std::string& name) {
    fake.adapters.push_back({.name = name, .ports = {fake.port}});
    return fake.adapters.back();
  }
  DeviceChoice choose(const std::string& name = "") {
    return choose_device(name, {}, preference, {fake.table(), ""});
  }
  DevicePreference preference;
  // For a requested device.
  std::string refusal(const std::string& name, int code) {
    try {
      choose(name);
    } catch (const VerbsError& error) {
      CHECK(error.code() == code);
      return error.what();
    }
    FAIL("nothing was refused");
    return "";
  }
};

void check_contains(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CHECK(text.find(part) != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "an iWARP adapter is refused as what it is, with or without a GID") {
  auto& adapter = add("irdma0");
  adapter.transport = IBV_TRANSPORT_IWARP;
  SUBCASE("with") {
    check_contains(refusal("irdma0", ENODEV), "'irdma0' cannot be used: it is an iWARP adapter");
    check_contains(refusal("irdma0", ENODEV), "which serves no route");
  }
  SUBCASE("without") {
    adapter.ports[0].gid_tbl_len = 0;
    check_contains(refusal("irdma0", ENODATA), "irdma0 is an iWARP adapter");
  }
  check_contains(choose().reason, "irdma0 is an iWARP adapter");
  adapter.transport = IBV_TRANSPORT_USNIC;
  check_contains(choose().reason, "speaks neither InfiniBand nor RoCE");
}

TEST_CASE_FIXTURE(Fixture, "a port that is down is refused for that, with or without a GID") {
  auto& port = add("mlx5_0").ports[0];
  port.state = IBV_PORT_DOWN;
  check_contains(refusal("mlx5_0", ENODEV), "it has port 1 in state DOWN: bring its network");
  port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  check_contains(refusal("mlx5_0", ENODEV), "start a subnet manager");
  port.gid_tbl_len = 0;
  check_contains(refusal("mlx5_0", ENODATA), "mlx5_0 has port 1 in state DOWN: connect the cable");
}

TEST_CASE_FIXTURE(Fixture, "a device that cannot be opened names its file and the container") {
  auto& adapter = add("mlx5_0");
  for (const int error : {EPERM, EACCES, ENOENT}) {
    adapter.open_error = error;
    const std::string text = refusal("mlx5_0", error);
    check_contains(text, "ibv_open_device of mlx5_0");
    check_contains(text, "/dev/infiniband/uverbs*");
    check_contains(text, "in a container");
  }
}

TEST_CASE_FIXTURE(Fixture, "the first adapter that can serve is chosen") {
  add("mlx5_0").ports[0].state = IBV_PORT_DOWN;
  add("mlx5_1").open_error = EPERM;
  add("mlx5_2");
  add("mlx5_3");
  const DeviceChoice choice = choose();
  CHECK(choice.device->name() == "mlx5_2");
  CHECK(choice.reason == "it is the first adapter that can serve");
}

TEST_CASE_FIXTURE(Fixture, "adapters that are preferred come first, in their order") {
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

TEST_CASE_FIXTURE(Fixture, "where no adapter can serve soft0 does, with the reason of each") {
  CHECK(choose().reason == "no RDMA adapter can serve (this machine has none)");
  add("mlx5_0").ports[0].state = IBV_PORT_DOWN;
  add("mlx5_1").open_error = EACCES;
  add("irdma0").transport = IBV_TRANSPORT_IWARP;
  add("rxe0").ports[0].gid_tbl_len = 0;
  const DeviceChoice choice = choose();
  CHECK(choice.device->name() == "soft0");
  check_contains(choice.reason, "mlx5_0 has port 1 in state DOWN");
  check_contains(choice.reason, "ibv_open_device of mlx5_1");
  check_contains(choice.reason, "irdma0 is an iWARP adapter");
  check_contains(choice.reason, "rxe0 port 1 has no RoCE v2 GID");
}

TEST_CASE("without libibverbs soft0 serves, and an adapter is refused with the reason") {
  const driver::VerbsLibrary none{nullptr, "libibverbs.so.1 cannot be loaded"};
  CHECK(choose_device("", {}, {}, none).device->name() == "soft0");
  CHECK_THROWS_WITH_AS(choose_device("mlx5_0", {}, {}, none),
                       "cannot open device 'mlx5_0': libibverbs.so.1 cannot be loaded; or use the "
                       "software HCA, device='soft0'",
                       VerbsError);
}

}  // namespace
}  // namespace zerohop::engine
