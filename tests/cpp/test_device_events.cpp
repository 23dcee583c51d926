// Asynchronous events of an adapter, and what works after it fails: on a scripted soft0.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/report.hpp"
#include "couple.hpp"
#include "scripted_device.hpp"

namespace zerohop::testing {
namespace {

using namespace zerohop::engine;

constexpr double kPromise = 5.0;  // seconds, from the loss to PeerLost

EndpointOptions scripted(ScriptedDevice& device) {
  EndpointOptions chosen = options("left");
  chosen.open_devices = [&device] { return device.open(); };
  return chosen;
}

struct Fixture {
  Reports reports;
  ScriptedDevice device;
  Endpoint left{scripted(device)};
  Endpoint right{options("right")};
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<Peer> to_left = right.accept(soon());
  Memory from = numbers(left);
  Memory to = numbers(right);

  static Memory numbers(Endpoint& endpoint) {
    return endpoint.empty(std::vector<std::int64_t>{8}, DType::parse("int64"));
  }
  std::shared_ptr<Transfer> write() { return testing::write(*to_right, from, to.remote()); }
  void check_a_write() { finish(write()); }
  // The event of that type, once it has arrived.
  DeviceEvent await(const std::string& type) {
    std::vector<DeviceEvent> found;
    REQUIRE(eventually([&] {
      found = left.device_events();
      std::erase_if(found, [&](const auto& event) { return event.type != type; });
      return !found.empty();
    }));
    CHECK(found.size() == 1);
    return found.front();
  }
  std::uint64_t broken() const { return to_right->rails().reports().front().stats->broken.load(); }
};

TEST_CASE_FIXTURE(Fixture, "events of a port are kept, and reported if they are trouble") {
  const struct {
    ibv_event_type type;
    const char* name;
    bool trouble;
  } cases[] = {{IBV_EVENT_PORT_ERR, "PORT_ERR", true},
               {IBV_EVENT_PORT_ACTIVE, "PORT_ACTIVE", false},
               {IBV_EVENT_LID_CHANGE, "LID_CHANGE", true},
               {IBV_EVENT_PKEY_CHANGE, "PKEY_CHANGE", true},
               {IBV_EVENT_GID_CHANGE, "GID_CHANGE", true},
               {IBV_EVENT_SM_CHANGE, "SM_CHANGE", false},
               {IBV_EVENT_CLIENT_REREGISTER, "CLIENT_REREGISTER", false}};
  for (const auto& [type, name, trouble] : cases) {
    CAPTURE(name);
    device.raise(type, 1);
    const DeviceEvent event = await(name);
    CHECK(event.device == "soft0");
    CHECK(event.port == 1);
    CHECK(event.peer.empty());
    CHECK(event.message == rdma::describe({type, 0, 1}, "soft0"));
    const std::string start = std::string("device soft0: ") + name + " on port 1";
    if (trouble) CHECK(eventually([&] { return Reports::count(start) == 1; }));
    if (!trouble) CHECK(Reports::count(start) == 0);
    check_a_write();
  }
}

TEST_CASE_FIXTURE(Fixture, "events of queues that are not ours end nothing") {
  for (const auto type : {IBV_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_WQ_FATAL}) {
    device.raise(type);
    (void)await(rdma::event_name(type));
  }
  CHECK(eventually([&] { return Reports::count("WQ_FATAL") == 1; }));
  CHECK(Reports::count("SRQ_LIMIT_REACHED") == 0);
  check_a_write();
}

TEST_CASE_FIXTURE(Fixture,
                  "an event of a queue pair names the peer, and is not trouble by itself") {
  for (const auto type :
       {IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR}) {
    device.raise_about_queue_pair(type);
    const DeviceEvent event = await(rdma::event_name(type));
    CHECK(event.peer == "right");
    CHECK(contains(event.message, "with peer 'right'"));
    check_a_write();
  }
  CHECK(broken() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a queue pair that failed is made anew, and the failure says why") {
  std::uint64_t before = 0;
  for (const auto type : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    CAPTURE(rdma::event_name(type));
    device.raise_about_queue_pair(type);
    CHECK(await(rdma::event_name(type)).peer == "right");
    CHECK(eventually([&] { return broken() == before + 1; }));
    before = broken();
    check_a_write();
    CHECK(to_right->alive());
  }
}

TEST_CASE_FIXTURE(Fixture, "a queue pair that takes no more messages is in error, and replaced") {
  device.raise_about_queue_pair(IBV_EVENT_QP_LAST_WQE_REACHED);
  CHECK(eventually([&] { return broken() == 1; }));
  check_a_write();
  CHECK(to_right->alive());
}

TEST_CASE_FIXTURE(Fixture, "an event of a queue pair that is replaced or unknown is only kept") {
  device.raise_about_queue_pair(IBV_EVENT_QP_FATAL);
  (void)await("QP_FATAL");
  check_a_write();
  ibv_qp stranger{};
  stranger.qp_num = 0xabcdef;
  device.raise_about(stranger, IBV_EVENT_QP_REQ_ERR);
  CHECK(await("QP_REQ_ERR").peer.empty());
  check_a_write();
  CHECK(broken() == 1);
}

TEST_CASE_FIXTURE(Fixture, "an unanswered connect reports that the port is down") {
  check_a_write();
  device.fail_next_send();
  const auto alone = write();
  const std::string without = failure_of<VerbsError>(alone).what();
  CHECK(contains(without, "RETRY_EXC_ERR"));
  CHECK(without.find("DOWN") == std::string::npos);
  device.take_port_down();
  device.fail_next_send();
  const auto failing = write();
  const std::string text = failure_of<VerbsError>(failing).what();
  CHECK(contains(text, "RETRY_EXC_ERR"));
  CHECK(contains(text, "port 1 of soft0 is DOWN"));
}

TEST_CASE_FIXTURE(Fixture, "what was sent before the port went down may have been written") {
  check_a_write();
  device.take_port_down();
  for (const ibv_wc_status status : {IBV_WC_LOC_QP_OP_ERR, IBV_WC_WR_FLUSH_ERR}) {
    CAPTURE(status);
    device.fail_next_send(status);
    const auto failing = write();
    const auto error = failure_of<VerbsError>(failing);
    CHECK(error.effect() == Effect::all);
    CHECK(contains(error.what(), "port 1 of soft0 is DOWN"));
  }
}

TEST_CASE("a device that is lost ends its connections, is left alone, and nothing hangs") {
  struct Loss {
    const char* cause;
    std::function<void(ScriptedDevice&)> happens;
  };
  const std::vector<Loss> losses{
      {"DEVICE_FATAL", [](auto& device) { device.raise(IBV_EVENT_DEVICE_FATAL); }},
      {"CQ_ERR", [](auto& device) { device.raise(IBV_EVENT_CQ_ERR); }},
      {"ibv_get_async_event", [](auto& device) { device.fail_async_events(EIO); }},
      {"asynchronous events is broken", [](auto& device) { device.end_async_channel(); }},
      {"ibv_get_cq_event", [](auto& device) { device.fail_completion_events(EIO); }},
      {"completion channel is broken", [](auto& device) { device.end_completion_channel(); }},
      {"ibv_req_notify_cq", [](auto& device) { device.refuse_arming(); }},
      {"ibv_poll_cq", [](auto& device) { device.refuse_polling(); }},
      {"being removed", [](auto& device) { device.remove(); }}};
  for (const Loss& loss : losses) {
    CAPTURE(std::string(loss.cause));
    Fixture fixture;
    auto& [reports, device, left, right, to_right, to_left, from, to] = fixture;
    const auto waiting = to_right->receive(from, 1);
    loss.happens(device);
    REQUIRE(waiting->wait(within(kPromise)));
    CHECK(contains(message_of<PeerLost>([&] { (void)waiting->result(); }), loss.cause));
    CHECK(contains(message_of<PeerLost>([&] { (void)fixture.write(); }), loss.cause));
    CHECK(eventually([&] { return !to_left->alive(); }, kPromise));
    CHECK(Reports::count(loss.cause) == 1);

    // Later operations name the remedy.
    const auto address = right.address().to_bytes();
    for (const std::function<void()>& later : std::vector<std::function<void()>>{
             [&] { (void)left.connect(address, soon()); }, [&] { (void)left.accept(soon()); },
             [&] { (void)Fixture::numbers(left); }}) {
      const std::string text = message_of<VerbsError>(later);
      CHECK(contains(text, loss.cause));
      CHECK(contains(text, "make a new"));
    }
    CHECK_THROWS_AS(right.connect(left.address().to_bytes(), soon()), PeerLost);
    CHECK_THROWS_AS((void)left.wait_notify(1, 1, true, soon()), PeerLost);

    // Its descriptors may stay readable; the thread, which still answers, ignores them.
    const int looks = device.looks();
    for (int i = 0; i < 20; ++i) {
      CHECK_THROWS_AS(right.connect(left.address().to_bytes(), soon()), PeerLost);
    }
    CHECK(device.looks() == looks);
    const auto begin = Deadline::Clock::now();
    left.close(soon());
    CHECK(Deadline::Clock::now() - begin < std::chrono::duration<double>(kPromise));
  }
}

// The kernel removes an RDMA device only when no process has it open any more.
TEST_CASE("a closed Endpoint releases its device, whatever arrays are kept") {
  Fixture f;
  f.check_a_write();
  const Memory part = f.from.slice(std::vector<Index>{});
  CHECK(f.device.is_open());
  f.left.close(soon());
  f.to_right = nullptr;
  CHECK(!f.device.is_open());
  CHECK(!f.from.closed());  // the array is still there
}

TEST_CASE("a device that is gone before the Endpoint's thread begins is found lost by it") {
  const Reports reports;
  for (int round = 0; round < 20; ++round) {
    ScriptedDevice device;
    EndpointOptions chosen = options("left");
    chosen.open_devices = [&device] {
      auto opened = device.open();
      device.remove();
      return opened;
    };
    Endpoint left(chosen);
    CHECK_THROWS_AS((void)left.accept(soon()), VerbsError);
  }
}

TEST_CASE("a call that outlasts close() releases the device when it leaves") {
  ScriptedDevice device;
  std::atomic<bool> inside{false};
  std::atomic<bool> may_leave{false};
  EndpointOptions chosen = scripted(device);
  chosen.interrupt = [&] {
    inside.store(true);
    inside.notify_all();
    may_leave.wait(false);
  };
  Endpoint left(chosen);
  std::thread waiter([&] { CHECK_THROWS_AS((void)left.accept(soon()), Error); });
  inside.wait(false);
  left.close(within(0));
  CHECK(device.is_open());
  may_leave.store(true);
  may_leave.notify_all();
  waiter.join();
  CHECK_FALSE(device.is_open());
}

TEST_CASE("a wait fails at once when the device is lost") {
  Reports reports;
  ScriptedDevice device;
  Endpoint left(scripted(device));
  std::thread loser([&] { device.raise(IBV_EVENT_DEVICE_FATAL); });
  const bool reported = contains(
      message_of<VerbsError>([&] { (void)left.accept(within(kTimeout)); }), "DEVICE_FATAL");
  CHECK(reported);
  loser.join();
  CHECK(contains(message_of<VerbsError>([&] { (void)left.wait_notify(1, 1, true, soon()); }),
                 "DEVICE_FATAL"));
}

}  // namespace
}  // namespace zerohop::testing
