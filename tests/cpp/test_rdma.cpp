#include <doctest/doctest.h>
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include "base/error.hpp"
#include "fake_verbs.hpp"
#include "process.hpp"
#include "rdma/memory_region.hpp"
#include "rdma/queue_pair.hpp"
#include "reported.hpp"

namespace zerohop::rdma {
namespace {

using testing::contains;
using testing::FakeVerbs;
using testing::in_child;

struct Fixture {
  FakeVerbs fake;
  std::shared_ptr<Device> device = Device::open(fake.table(), "fake0");
  std::shared_ptr<ProtectionDomain> domain = ProtectionDomain::create(device);
  std::shared_ptr<CompletionQueue> queue = CompletionQueue::create(device, 16);

  std::unique_ptr<QueuePair> queue_pair(const QueuePairOptions& options = {}) {
    return QueuePair::create(domain, queue, queue, options);
  }
};

bool is_non_blocking(int fd) { return (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

TEST_CASE_FIXTURE(Fixture, "a device is found by name and its descriptors never block") {
  CHECK(Device::names(*fake.table()) == std::vector<std::string>{"fake0"});
  CHECK(device->name() == "fake0");
  CHECK(device->gid().value.raw[0] == 0xab);
  CHECK(is_non_blocking(device->async_fd()));
  CHECK(is_non_blocking(queue->event_fd()));
  const std::string message =
      testing::message_of<Error>([&] { Device::open(fake.table(), "mlx5_7"); });
  CHECK(contains(message, "mlx5_7"));
  CHECK(contains(message, "fake0"));
  CHECK(contains(
      testing::message_of<Error>([&] { Device::open(fake.table(), "fake0", {.port = 2}); }),
      "no port 2"));
}

TEST_CASE("an async event is reported with its place, cause and remedy") {
  const auto reported = [](ibv_event_type type, std::uint32_t qp, int port) {
    return describe(AsyncEvent{type, qp, port}, "mlx5_0");
  };
  CHECK(
      contains(reported(IBV_EVENT_PORT_ERR, 0, 2), "device mlx5_0: PORT_ERR on port 2: the link"));
  CHECK(contains(reported(IBV_EVENT_QP_FATAL, 77, 0), "QP_FATAL of queue pair 77: "));
  CHECK(contains(describe(AsyncEvent{IBV_EVENT_QP_FATAL, 77, 0}, "mlx5_0", "left"),
                 "QP_FATAL of queue pair 77 with peer 'left': "));
  for (const auto type : {IBV_EVENT_PORT_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_GID_CHANGE,
                          IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE}) {
    CHECK(is_trouble(type));
  }
  for (const auto type : {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PATH_MIG, IBV_EVENT_SQ_DRAINED}) {
    CHECK_FALSE(is_trouble(type));
  }
  CHECK(contains(reported(static_cast<ibv_event_type>(31), 0, 0), "UNKNOWN: "));
  for (int type = 0; type <= IBV_EVENT_WQ_FATAL; ++type) {
    CAPTURE(type);
    const bool ends =
        type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_SRQ_ERR;
    CHECK(ends_device(static_cast<ibv_event_type>(type)) == ends);
    if (ends) CHECK(is_trouble(static_cast<ibv_event_type>(type)));
    // "..., which is harmless", "..., but zerohop uses none": no action needed.
    const std::string help = event_help(static_cast<ibv_event_type>(type));
    if (contains(help, "harmless")) CHECK_FALSE(is_trouble(static_cast<ibv_event_type>(type)));
  }
}

TEST_CASE_FIXTURE(Fixture, "async events are decoded, then acknowledged") {
  CHECK_FALSE(device->next_async_event().has_value());
  ibv_qp qp{};
  qp.qp_num = 77;
  ibv_async_event fatal{};
  fatal.event_type = IBV_EVENT_QP_FATAL;
  fatal.element.qp = &qp;
  ibv_async_event port{};
  port.event_type = IBV_EVENT_PORT_ERR;
  port.element.port_num = 1;
  fake.async_events = {fatal, port};

  const auto first = device->next_async_event();
  REQUIRE(first.has_value());
  CHECK(first->type == IBV_EVENT_QP_FATAL);
  CHECK(first->qp_number == 77);
  CHECK(first->port == 0);
  const auto second = device->next_async_event();
  REQUIRE(second.has_value());
  CHECK(second->port == 1);
  CHECK(second->qp_number == 0);
  CHECK_FALSE(device->next_async_event().has_value());
  CHECK(fake.acknowledged_async_events == 2);
}

TEST_CASE_FIXTURE(Fixture, "a device whose place in /sys is gone is being removed") {
  char* place = device->context()->device->dev_path;
  CHECK_FALSE(device->is_being_removed());  // like our software device, it has no directory
  std::strcpy(place, "/");
  CHECK_FALSE(device->is_being_removed());
  std::strcpy(place, "/sys/class/infiniband_verbs/was here");
  CHECK(device->is_being_removed());
  place[0] = '\0';
}

TEST_CASE_FIXTURE(Fixture, "completion events are acknowledged one by one") {
  fake.pending_cq_events = 3;
  CHECK(queue->consume_events() == 0);
  CHECK(fake.acknowledged_cq_events == 3);
  CHECK(queue->consume_events() == 0);
  CHECK(fake.acknowledged_cq_events == 3);
}

TEST_CASE_FIXTURE(Fixture,
                  "a completion channel that fails says so, with its events acknowledged") {
  fake.pending_cq_events = 2;
  fake.cq_event_errors = {EINTR, EIO};
  CHECK(queue->consume_events() == EIO);
  CHECK(fake.acknowledged_cq_events == 2);
}

TEST_CASE_FIXTURE(Fixture, "a device whose events cannot be read says why") {
  fake.async_event_errors = {EINTR, EIO};
  CHECK(contains(testing::message_of<Error>([&] { (void)device->next_async_event(); }),
                 "ibv_get_async_event"));
  CHECK_FALSE(device->next_async_event().has_value());
}

TEST_CASE_FIXTURE(Fixture, "a port that is down is named, unless it cannot be asked") {
  CHECK(device->port_trouble().empty());
  fake.port.state = IBV_PORT_DOWN;
  CHECK(device->port_trouble() == "port 1 of fake0 is DOWN");
  fake.calls = 0;
  fake.fail_at = 1;
  fake.error_number = EIO;
  CHECK(device->port_trouble().empty());
}

TEST_CASE_FIXTURE(Fixture, "a completion queue's depth is bounded by the device") {
  CHECK_THROWS_AS(CompletionQueue::create(device, 0), VerbsError);
  CHECK(contains(testing::message_of<Error>([&] { CompletionQueue::create(device, 4097); }),
                 "1 to 4096"));
  queue->resize(64);
  CHECK(queue->depth() == 64);
}

TEST_CASE_FIXTURE(Fixture, "registration goes through reg_mr_iova2 for optional access bits") {
  std::byte memory[16];
  const auto plain = MemoryRegion::create(domain, memory, 16, IBV_ACCESS_LOCAL_WRITE);
  CHECK(fake.registered_by == "reg_mr");
  CHECK(plain->address() == reinterpret_cast<std::uintptr_t>(memory));
  CHECK(plain->nbytes() == 16);
  const int relaxed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
  const auto optional = MemoryRegion::create(domain, memory, 16, relaxed);
  CHECK(fake.registered_by == "reg_mr_iova2");
  CHECK(fake.registered_access == relaxed);
}

TEST_CASE("without reg_mr_iova2 the optional access bits are dropped") {
  FakeVerbs fake;
  auto old = std::make_shared<driver::Verbs>(*fake.table());
  old->reg_mr_iova2 = nullptr;
  auto domain = ProtectionDomain::create(Device::open(old, "fake0"));
  std::byte memory[16];
  const auto region = MemoryRegion::create(domain, memory, 16,
                                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  CHECK(fake.registered_by == "reg_mr");
  CHECK(fake.registered_access == IBV_ACCESS_LOCAL_WRITE);
}

TEST_CASE_FIXTURE(Fixture, "a refused registration names its cause") {
  std::byte memory[16];
  const auto refused_with = [&](int error_number, int access) {
    fake.fail_at = fake.calls + 1;
    fake.error_number = error_number;
    return testing::message_of<Error>([&] { MemoryRegion::create(domain, memory, 16, access); });
  };
  CHECK(contains(refused_with(ENOMEM, 0), "ulimit -l"));
  CHECK(contains(refused_with(EFAULT, IBV_ACCESS_LOCAL_WRITE), "read-only"));
  CHECK(contains(refused_with(EINVAL, IBV_ACCESS_REMOTE_WRITE), "IBV_ACCESS_LOCAL_WRITE"));
  CHECK_THROWS_AS(MemoryRegion::create(domain, memory, 0, 0), RegistrationError);
  CHECK_THROWS_AS(MemoryRegion::create(domain, memory, (1 << 20) + 1, 0), RegistrationError);
}

TEST_CASE_FIXTURE(Fixture, "options are clipped to the device and reported as granted") {
  const auto pair = queue_pair({.send_depth = 5000, .send_sge = 16, .inline_bytes = 1024});
  CHECK(pair->options().send_depth == 1024);
  CHECK(pair->options().receive_depth == 64);
  CHECK(pair->options().send_sge == 4);
  CHECK(pair->options().inline_bytes == 512);  // the second attempt
  CHECK(fake.created.qp_type == IBV_QPT_RC);
  CHECK(fake.created.sq_sig_all == 0);
}

TEST_CASE_FIXTURE(Fixture, "each transition passes exactly the attributes it requires") {
  const auto pair = queue_pair();
  QueuePairAddress remote{
      .number = 0x42, .psn = 0x99, .mtu = IBV_MTU_1024, .reads_in = 4, .reads_out = 2};
  remote.gid.raw[3] = 7;
  pair->connect(remote);
  pair->to_error();
  pair->to_reset();
  REQUIRE(fake.transitions.size() == 5);

  const auto& [init, init_mask] = fake.transitions[0];
  CHECK(init_mask == (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  CHECK(init.qp_state == IBV_QPS_INIT);
  CHECK(init.port_num == 1);
  CHECK(init.qp_access_flags ==
        (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));

  const auto& [rtr, rtr_mask] = fake.transitions[1];
  CHECK(rtr_mask == (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  CHECK(rtr.qp_state == IBV_QPS_RTR);
  CHECK(rtr.path_mtu == IBV_MTU_1024);  // the smaller of both ends
  CHECK(rtr.dest_qp_num == 0x42);
  CHECK(rtr.rq_psn == 0x99);
  CHECK(rtr.max_dest_rd_atomic == 2);  // min(16 served here, 2 sent there)
  CHECK(rtr.min_rnr_timer == 12);
  CHECK(rtr.ah_attr.is_global == 1);
  CHECK(rtr.ah_attr.port_num == 1);
  CHECK(rtr.ah_attr.grh.hop_limit == 255);
  CHECK(std::memcmp(&rtr.ah_attr.grh.dgid, &remote.gid, sizeof remote.gid) == 0);

  const auto& [rts, rts_mask] = fake.transitions[2];
  CHECK(rts_mask == (IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
  CHECK(rts.qp_state == IBV_QPS_RTS);
  CHECK(rts.sq_psn == pair->address().psn);
  CHECK(rts.max_rd_atomic == 4);  // min(8 sent here, 4 served there)
  CHECK(rts.timeout == 14);
  CHECK(rts.retry_cnt == 7);
  CHECK(rts.rnr_retry == 7);

  CHECK(fake.transitions[3].second == IBV_QP_STATE);
  CHECK(fake.transitions[3].first.qp_state == IBV_QPS_ERR);
  CHECK(fake.transitions[4].second == IBV_QP_STATE);
  CHECK(fake.transitions[4].first.qp_state == IBV_QPS_RESET);
}

TEST_CASE_FIXTURE(Fixture, "inside an InfiniBand subnet the path goes by LID, outside by GID") {
  fake.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  const auto pair = queue_pair();
  pair->to_init();
  QueuePairAddress remote{.number = 2, .gid = pair->address().gid, .lid = 11};
  pair->to_ready_to_receive(remote);
  CHECK(fake.transitions[1].first.ah_attr.is_global == 0);
  CHECK(fake.transitions[1].first.ah_attr.dlid == 11);
  remote.lid = 0;
  pair->to_ready_to_receive(remote);
  CHECK(fake.transitions[2].first.ah_attr.is_global == 1);
  remote.lid = 11;
  remote.gid.raw[7] ^= 1;  // another subnet prefix
  pair->to_ready_to_receive(remote);
  CHECK(fake.transitions[3].first.ah_attr.is_global == 1);
  CHECK(fake.transitions[3].first.ah_attr.grh.dgid.raw[7] == remote.gid.raw[7]);
}

TEST_CASE_FIXTURE(Fixture, "EINVAL of a transition becomes a sentence that names the attribute") {
  const auto pair = queue_pair();
  const QueuePairAddress remote{.number = 2};
  // address() and port_attributes() query the port before the transition itself is refused.
  const auto refuse_after = [&](int calls, auto transition) {
    fake.fail_at = fake.calls + calls + 1;
    fake.error_number = EINVAL;
    return testing::message_of<Error>(transition);
  };
  CHECK(contains(refuse_after(2, [&] { pair->to_ready_to_receive(remote); }),
                 "is in state RESET: go through"));
  pair->to_init();
  const QueuePairAddress bad{.number = 0x1000000, .psn = 0x1000000};
  const std::string two = refuse_after(2, [&] { pair->to_ready_to_receive(bad); });
  CHECK(contains(two, "dest_qp_num=16777216 (allowed: 2 to 16777215)"));
  CHECK(contains(two, "rq_psn=16777216"));
  CHECK_FALSE(contains(two, "path_mtu"));
  CHECK(contains(refuse_after(2, [&] { pair->to_ready_to_receive(remote); }),
                 "path to the remote GID, or one of path_mtu=3"));
  fake.port.state = IBV_PORT_DOWN;
  CHECK(contains(refuse_after(2, [&] { pair->to_ready_to_receive(remote); }), "is not active"));
  fake.error_number = 0;
}

TEST_CASE_FIXTURE(Fixture, "a forked child leaves its parent's resources alone") {
  auto pair = queue_pair();
  const std::size_t live = fake.live();
  CHECK(in_child([&] {
          pair.reset();
          return fake.live() == live ? 0 : 1;
        }) == 0);
}

TEST_CASE("every completion status has its own name and help") {
  std::set<std::string> names;
  for (int status = IBV_WC_SUCCESS; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status) {
    CAPTURE(status);
    const auto each = static_cast<ibv_wc_status>(status);
    CHECK(std::string(completion_status_name(each)).starts_with("IBV_WC_"));
    CHECK(names.insert(completion_status_name(each)).second);
    CHECK(std::strlen(completion_status_help(each)) > 20);
  }
  CHECK(std::string(completion_status_name(static_cast<ibv_wc_status>(99))) == "IBV_WC_UNKNOWN");
}

}  // namespace
}  // namespace zerohop::rdma
