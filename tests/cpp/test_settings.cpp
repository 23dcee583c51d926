// Settings of a queue pair are cached: no device is queried while its Peer's lock is held.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "couple.hpp"
#include "softhca/softhca.hpp"

using namespace zerohop;
using namespace zerohop::engine;
using namespace zerohop::testing;

namespace {

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
  const auto path = to_right->rails().path(0);
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
