// How rdma_cm connects queue pairs, on stand-ins of libibverbs and librdmacm.
#include <doctest/doctest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "engine/core/device_choice.hpp"
#include "fake_verbs.hpp"
#include "rdma/connection_manager.hpp"
#include "reported.hpp"

namespace zerohop::testing {
namespace {

using rdma::ConnectionEvent;
using Kind = ConnectionEvent::Kind;

// Its functions say what they were asked, and hand out the events that a test queues.
struct FakeRdmaCm {
  UniqueFd fd{::eventfd(0, EFD_CLOEXEC)};
  rdma_event_channel channel{fd.get()};
  std::deque<rdma_cm_event> events;
  std::vector<std::string> calls;
  std::vector<const rdma_cm_id*> unacknowledged;
  rdma_conn_param wanted{};
  rdma::Introduction introduction{};
  rdma_cm_id* last = nullptr;  // made
  int ids = 0;
  int ports_in_use = 0;
  int resolve_error = 0;
  std::uint8_t traffic_class = 0;

  static inline FakeRdmaCm* current = nullptr;
  FakeRdmaCm() { current = this; }
  ~FakeRdmaCm() {
    CHECK(ids == 0);
    CHECK(unacknowledged.empty());
    current = nullptr;
  }
  FakeRdmaCm(const FakeRdmaCm&) = delete;
  FakeRdmaCm& operator=(const FakeRdmaCm&) = delete;

  static int fail(int error) { return errno = error, -1; }
  int note(const char* call) { return calls.emplace_back(call), 0; }

  std::shared_ptr<const driver::RdmaCm> table();
  void raise(rdma_cm_event_type type, rdma_cm_id* id, int status = 0) {
    rdma_cm_event event{};
    event.event = type;
    event.id = id;
    event.status = status;
    events.push_back(event);
  }
};

FakeRdmaCm& fake() { return *FakeRdmaCm::current; }

int create_id(rdma_event_channel*, rdma_cm_id** id, void* context, rdma_port_space) {
  *id = new rdma_cm_id{};
  (*id)->context = context;
  fake().last = *id;
  return ++fake().ids, 0;
}

int destroy_id(rdma_cm_id* id) {
  CHECK(std::ranges::count(fake().unacknowledged, id) == 0);  // the real one waits for ever
  delete id;
  return --fake().ids, 0;
}

int listen(rdma_cm_id*, int) {
  return fake().ports_in_use-- > 0 ? FakeRdmaCm::fail(EADDRINUSE) : fake().note("listen");
}

int connect(rdma_cm_id*, rdma_conn_param* wanted) {
  fake().wanted = *wanted;
  if (wanted->private_data != nullptr) {
    std::memcpy(&fake().introduction, wanted->private_data, sizeof fake().introduction);
  }
  return fake().note("connect");
}

int get_event(rdma_event_channel*, rdma_cm_event** event) {
  if (fake().events.empty()) return FakeRdmaCm::fail(EAGAIN);
  *event = new rdma_cm_event(fake().events.front());
  fake().events.pop_front();
  fake().unacknowledged.push_back((*event)->id);
  return 0;
}

int acknowledge(rdma_cm_event* event) {
  std::erase(fake().unacknowledged, event->id);
  delete event;
  return 0;
}

std::shared_ptr<const driver::RdmaCm> FakeRdmaCm::table() {
  auto made = std::make_shared<driver::RdmaCm>();
  made->create_event_channel = [] { return &fake().channel; };
  made->destroy_event_channel = [](rdma_event_channel*) {};
  made->create_id = testing::create_id;
  made->destroy_id = testing::destroy_id;
  made->bind_addr = [](rdma_cm_id*, sockaddr*) { return 0; };
  made->listen = testing::listen;
  made->resolve_addr = [](rdma_cm_id*, sockaddr*, sockaddr*, int) {
    const int error = fake().resolve_error;
    return error != 0 ? fail(error) : fake().note("resolve_addr");
  };
  made->resolve_route = [](rdma_cm_id*, int) { return fake().note("resolve_route"); };
  made->connect = testing::connect;
  made->accept = [](rdma_cm_id*, rdma_conn_param* granted) {
    fake().wanted = *granted;
    return fake().note("accept");
  };
  made->init_qp_attr = [](rdma_cm_id*, ibv_qp_attr* found, int*) {
    CHECK(found->qp_state == IBV_QPS_RTR);
    found->ah_attr.grh.traffic_class = fake().traffic_class;
    found->path_mtu = IBV_MTU_1024;
    return fake().note("init_qp_attr");
  };
  made->establish = [](rdma_cm_id*) { return fake().note("establish"); };
  made->set_option = [](rdma_cm_id*, int level, int option, void* value, std::size_t nbytes) {
    CHECK((level == RDMA_OPTION_ID && option == RDMA_OPTION_ID_TOS && nbytes == 1));
    std::memcpy(&fake().traffic_class, value, nbytes);
    return 0;
  };
  made->reject = [](rdma_cm_id*, const void*, std::uint8_t) { return fake().note("reject"); };
  made->get_src_port = [](rdma_cm_id*) { return ::htons(4791); };
  made->get_cm_event = get_event;
  made->ack_cm_event = acknowledge;
  return made;
}

// The first six bytes of its GID are the MAC address of the loopback interface: zeros.
struct Siw {
  FakeVerbs verbs;
  FakeRdmaCm cm;

  Siw() {
    ibv_gid_entry entry{};
    entry.port_num = 1;
    entry.gid.raw[15] = 1;
    verbs.gid_table = {entry};
    verbs.adapters.clear();
    add("siw0").transport = IBV_TRANSPORT_IWARP;
  }
  FakeVerbs::Adapter& add(const std::string& name) {
    verbs.adapters.push_back({.name = name, .ports = {verbs.port}});
    return verbs.adapters.back();
  }
  std::shared_ptr<rdma::Device> open() { return rdma::Device::open(verbs.table(), "siw0"); }
  std::shared_ptr<rdma::ConnectionManager> manager() {
    return rdma::ConnectionManager::create(*open(), cm.table());
  }
  const rdma::QueuePairAddress local{.number = 3, .psn = 30, .reads_in = 4, .reads_out = 5};
  const rdma::QueuePairAddress remote{.number = 7, .psn = 70, .reads_in = 2, .reads_out = 9};
};

TEST_CASE_FIXTURE(Siw, "an iWARP device has the addresses of its network interface") {
  const auto device = open();
  CHECK(device->is_iwarp());
  CHECK(device->obstacle().empty());
  CHECK(device->gid().kind == rdma::GidKind::iwarp);
  const std::string address = rdma::gid_text(device->gid().value);
  CHECK((address == "::1" || address == "::ffff:127.0.0.1"));  // with IPv6, or without
  verbs.gid_table[0].gid.raw[0] = 2;                           // the MAC address of nobody
  CHECK_THROWS_WITH_AS(open(), doctest::Contains("without an IP address: give it one"), VerbsError);
}

TEST_CASE_FIXTURE(Siw, "an iWARP device is chosen where no other adapter serves") {
  const driver::VerbsLibrary library{verbs.table(), ""};
  CHECK(engine::choose_device("", {}, {}, library).device->name() == "siw0");
  add("rxe0").ports[0].state = IBV_PORT_DOWN;
  CHECK(engine::choose_device("", {}, {}, library).device->name() == "siw0");
  CHECK(engine::choose_device("siw0", {}, {}, library).reason == "it was asked for");
}

TEST_CASE_FIXTURE(Siw, "a port that is in use is not the only one") {
  cm.ports_in_use = 2;
  CHECK(manager()->port() == 4791);
  cm.ports_in_use = 1000;
  CHECK_THROWS_WITH_AS(manager(), doctest::Contains("Address already in use"), VerbsError);
}

TEST_CASE_FIXTURE(Siw, "who dials introduces its queue pair") {
  const auto manager = this->manager();
  const auto connection = manager->dial(local, remote);
  rdma_cm_id* const id = cm.last;
  cm.raise(RDMA_CM_EVENT_ADDR_RESOLVED, id);
  cm.raise(RDMA_CM_EVENT_ROUTE_RESOLVED, id);
  const auto routed = manager->next_event();
  REQUIRE(routed);
  CHECK((routed->kind == Kind::routed && routed->connection == connection));
  connection->connect();
  CHECK(cm.wanted.qp_num == 3);
  CHECK(cm.wanted.responder_resources == 4);  // what both ends can
  CHECK(cm.wanted.initiator_depth == 2);
  CHECK((cm.introduction.from_number == 3 && cm.introduction.from_psn == 30));
  CHECK((cm.introduction.to_number == 7 && cm.introduction.to_psn == 70));
  cm.raise(RDMA_CM_EVENT_ESTABLISHED, id);
  cm.raise(RDMA_CM_EVENT_DISCONNECTED, id);
  CHECK(manager->next_event()->kind == Kind::established);
  CHECK(manager->next_event()->kind == Kind::closed);
  CHECK(!manager->next_event());
}

TEST_CASE_FIXTURE(Siw, "a request names the queue pair that it is for") {
  const auto manager = this->manager();
  const rdma::Introduction sent{.from_number = 7, .to_number = 3, .to_psn = 30};
  rdma_cm_event request{};
  request.event = RDMA_CM_EVENT_CONNECT_REQUEST;
  SUBCASE("it is accepted") {
    create_id(nullptr, &request.id, nullptr, RDMA_PS_TCP);
    request.param.conn.private_data = &sent;
    request.param.conn.private_data_len = sizeof sent;
    cm.events.push_back(request);
    const auto event = manager->next_event();
    CHECK(event->kind == Kind::requested);
    CHECK((event->introduction.from_number == 7 && event->introduction.to_number == 3));
    CHECK(event->introduction.to_psn == 30);
    event->connection->accept(local, remote);
    CHECK(cm.calls.back() == "accept");
    CHECK(cm.wanted.qp_num == 3);
  }
  SUBCASE("one without it names none, and is rejected") {
    create_id(nullptr, &request.id, nullptr, RDMA_PS_TCP);
    cm.events.push_back(request);
    const auto event = manager->next_event();
    CHECK((event->introduction.to_number == 0 && event->introduction.to_psn == 0));
    event->connection->reject();
    CHECK(cm.calls.back() == "reject");
  }
}

TEST_CASE_FIXTURE(Siw, "what fails has a reason") {
  const auto manager = this->manager();
  const auto connection = manager->dial(local, remote);
  rdma_cm_id* const id = cm.last;
  for (const auto& [type, text] : {
           std::pair{RDMA_CM_EVENT_ADDR_ERROR, "cannot be resolved: "},
           std::pair{RDMA_CM_EVENT_ROUTE_ERROR, "no route"},
           std::pair{RDMA_CM_EVENT_UNREACHABLE, "does not answer"},
           std::pair{RDMA_CM_EVENT_CONNECT_ERROR, "the connection failed"},
       }) {
    cm.raise(type, id, -ETIMEDOUT);
    const auto event = manager->next_event();
    CHECK(event->kind == Kind::failed);
    CHECK(contains(event->text, text));
    CHECK(contains(event->text, "errno 110"));
  }
  cm.raise(RDMA_CM_EVENT_REJECTED, id, 28);
  CHECK(contains(manager->next_event()->text, "refused the connection (status 28)"));
  cm.resolve_error = ENETUNREACH;
  CHECK_THROWS_WITH_AS(manager->dial(local, remote), doctest::Contains("rdma_resolve_addr"),
                       VerbsError);
}

TEST_CASE_FIXTURE(Siw, "an event is acknowledged before its connection ends") {
  const auto manager = this->manager();
  auto connection = manager->dial(local, remote);
  rdma_cm_id* const id = cm.last;
  cm.raise(RDMA_CM_EVENT_ESTABLISHED, id);
  auto event = manager->next_event();
  CHECK(cm.unacknowledged.empty());
  connection.reset();
  event.reset();  // destroy_id() checks it
  CHECK(cm.ids == 1);
}

// Its GID is an IPv4 address.
struct Roce : Siw {
  Roce() {
    verbs.gid_table[0].gid_type = IBV_GID_TYPE_ROCE_V2;
    verbs.gid_table[0].gid.raw[10] = verbs.gid_table[0].gid.raw[11] = 0xff;
    verbs.port.link_layer = IBV_LINK_LAYER_ETHERNET;
    verbs.adapters.clear();
    add("siw0").transport = IBV_TRANSPORT_IB;
  }
};

TEST_CASE_FIXTURE(Roce, "on RoCE the kernel finds the path, and we connect the queue pair") {
  const auto manager = rdma::ConnectionManager::create(*open(), cm.table(), 0x68);
  const auto connection = manager->dial(local, remote);
  CHECK(cm.traffic_class == 0x68);
  cm.raise(RDMA_CM_EVENT_CONNECT_RESPONSE, cm.last);
  CHECK(manager->next_event()->kind == Kind::established);
  const auto path = connection->path();
  REQUIRE(path);
  CHECK(path->attributes.grh.traffic_class == 0x68);
  CHECK(path->mtu == IBV_MTU_1024);
  connection->establish();
  CHECK(cm.calls.back() == "establish");
}

TEST_CASE_FIXTURE(Siw, "on iWARP the kernel connects the queue pair") {
  CHECK(!manager()->dial(local, remote)->path());
}

TEST_CASE_FIXTURE(Roce, "rdma_cm is refused where a device has no IP address") {
  CHECK(rdma::connection_manager(*open(), false) == nullptr);
  verbs.gid_table[0].gid_type = IBV_GID_TYPE_ROCE_V1;
  const auto device = rdma::Device::open(verbs.table(), "siw0", {.roce = rdma::GidKind::roce_v1});
  CHECK_THROWS_WITH_AS(rdma::connection_manager(*device, true),
                       doctest::Contains("leave rdma_cm out, or use a RoCE v2"), VerbsError);
}

}  // namespace
}  // namespace zerohop::testing
