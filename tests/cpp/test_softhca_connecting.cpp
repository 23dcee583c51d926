// Which soft0 queue pairs connect to each other: in any order, again after a reset, and no others.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/tcp.h>

#include <filesystem>
#include <set>

#include "soft_side.hpp"
#include "softhca/gid.hpp"

using namespace zerohop::testing;

namespace {

ibv_gid gid_of(const char* address) {
  sockaddr_in where{};
  ::inet_pton(AF_INET, address, &where.sin_addr);
  return zerohop::softhca::make_gid(where);
}

// TCP connections of this process.
std::set<std::string> congestion_controls() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    if (info.tcpi_state != TCP_ESTABLISHED) continue;
    char name[16] = {};
    size = sizeof name - 1;
    REQUIRE(::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0);
    names.insert(name);
  }
  return names;
}

}  // namespace

TEST_CASE("a queue pair that stays in RTR serves its peer") {
  for (const bool higher : {false, true}) {  // either side may be the one that dials
    Side first;
    Side second;
    const bool first_is_lower =
        std::memcmp(first.address().gid.raw, second.address().gid.raw, 16) < 0;
    Side& passive = first_is_lower == higher ? second : first;
    Side& active = first_is_lower == higher ? first : second;
    REQUIRE(passive.try_init() == 0);
    REQUIRE(passive.try_ready_to_receive(active.address()) == 0);
    active.connect(passive.address());
    passive.receive(1, 0, 8);
    REQUIRE(active.post_message(2, {active.sge(0, 8)}) == 0);
    CHECK(passive.wait().wr_id == 1);
    CHECK(active.wait().status == IBV_WC_SUCCESS);
  }
}

TEST_CASE("a reset queue pair forgets its work and connects again, however soon") {
  Pair pair;
  for (int round = 0; round < 30; ++round) {  // mostly before the previous connection is complete
    pair.a.receive(1);
    pair.b.receive(2);
    for (Side* side : {&pair.a, &pair.b}) {
      REQUIRE(side->try_state(IBV_QPS_RESET) == 0);
      CHECK(side->idle());
    }
    connect(pair.a, pair.b);
  }
  pair.b.receive(3, 0, 8);
  REQUIRE(pair.a.post_message(4, {pair.a.sge(0, 8)}) == 0);
  CHECK(pair.b.wait().wr_id == 3);
  CHECK(pair.a.wait().wr_id == 4);
}

TEST_CASE("two queue pairs of one device reach each other") {
  ibv_context* context = open_soft0();
  {
    Side a({}, context);
    Side b({}, context);
    connect(a, b);
    b.receive(3, 0, 8);
    REQUIRE(a.post_message(4, {a.sge(0, 8)}) == 0);
    CHECK(b.wait().wr_id == 3);
    CHECK(a.wait().wr_id == 4);
  }
  CHECK(soft().close_device(context) == 0);
}

TEST_CASE("a wrong packet sequence number keeps the two apart") {
  Side a({.timeout = 1, .retries = 0});
  Side b;
  Address wrong = b.address();
  wrong.psn ^= 1;
  b.connect(a.address());
  REQUIRE(a.try_init() == 0);
  REQUIRE(a.try_ready_to_receive(wrong) == 0);
  // The refusal may come before the last step is taken, or after.
  if (a.try_ready_to_send() == 0) {
    REQUIRE(a.post_message(1, {a.sge(0, 8)}) == 0);
    CHECK(a.wait().status == IBV_WC_RETRY_EXC_ERR);
  }
  CHECK(a.state() == IBV_QPS_ERR);
}

TEST_CASE("a peer with another packet sequence number is disconnected when the own one is known") {
  for (const bool higher : {false, true}) {
    Side first;
    Side second;
    const bool first_is_lower =
        std::memcmp(first.address().gid.raw, second.address().gid.raw, 16) < 0;
    Side& passive = first_is_lower == higher ? second : first;
    Side& active = first_is_lower == higher ? first : second;
    Address wrong = passive.address();
    wrong.psn ^= 1;
    REQUIRE(passive.try_init() == 0);
    REQUIRE(passive.try_ready_to_receive(active.address()) == 0);
    active.connect(wrong);
    active.receive(5);
    REQUIRE(active.post_rdma(IBV_WR_RDMA_WRITE, 1, active.sge(0, 8), passive.at(0),
                             passive.mr->rkey) == 0);
    CHECK(active.wait().status == IBV_WC_SUCCESS);
    REQUIRE(passive.try_ready_to_send() == 0);
    const ibv_wc told = active.wait();
    CHECK(told.wr_id == 5);
    CHECK(told.status == IBV_WC_WR_FLUSH_ERR);
  }
}

TEST_CASE("a queue pair is not connected to itself") {
  Side side;
  REQUIRE(side.try_init() == 0);
  CHECK(side.try_ready_to_receive(side.address()) == EINVAL);
  CHECK(side.state() == IBV_QPS_INIT);
}

TEST_CASE("connections inside a host are not paced") {
  Pair pair;
  pair.b.receive(1, 0, 8);
  REQUIRE(pair.a.post_message(2, {pair.a.sge(0, 8)}) == 0);
  CHECK(pair.b.wait().wr_id == 1);
  CHECK(congestion_controls() == std::set<std::string>{"reno"});
}

TEST_CASE("ports are on one host when they share an address, or are on its loopback") {
  using zerohop::softhca::on_one_host;
  CHECK(on_one_host(gid_of("192.0.2.1"), gid_of("192.0.2.1")));
  CHECK(on_one_host(gid_of("127.0.0.1"), gid_of("127.0.0.2")));
  CHECK_FALSE(on_one_host(gid_of("192.0.2.1"), gid_of("192.0.2.2")));
  CHECK_FALSE(on_one_host(gid_of("127.0.0.1"), gid_of("192.0.2.2")));
}
