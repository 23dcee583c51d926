// Shared receive queues of soft0: several queue pairs take from one.
#include <doctest/doctest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "forger.hpp"

using namespace zerohop::testing;
using wire::Op;

namespace {

constexpr std::size_t kLarge = std::size_t{3} << 20;  // several packets

ibv_srq* make_queue(ibv_pd* domain, std::uint32_t depth = 64) {
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = depth, .max_sge = 2, .srq_limit = 0};
  return soft().create_srq(domain, &init);
}

// One side whose queue pairs, one for each of two peers, share their receives.
class Hub {
 public:
  explicit Hub(std::size_t nbytes = 1 << 16)
      : side({.nbytes = nbytes}), peers{Side({.nbytes = nbytes}), Side({.nbytes = nbytes})} {
    side.destroy_queue_pair();
    side.options.shared = queue = make_queue(side.pd);
    REQUIRE(queue != nullptr);
    for (std::size_t i = 0; i < peers.size(); ++i) {
      side.create_queue_pair();
      connect(side, peers[i]);
      queue_pairs[i] = side.qp;
    }
  }
  ~Hub() {
    side.qp = nullptr;
    for (ibv_qp* queue_pair : queue_pairs) CHECK(soft().destroy_qp(queue_pair) == 0);
    CHECK(soft().destroy_srq(queue) == 0);
  }

  Side side;
  std::array<Side, 2> peers;
  ibv_srq* queue = nullptr;
  std::array<ibv_qp*, 2> queue_pairs{};
};

TEST_CASE("queue pairs take the receives of a shared queue in turn") {
  Hub hub;
  for (std::uint64_t id = 0; id < 6; ++id) hub.side.receive(id, 64 * id, 64);
  std::array<int, 6> seen{};
  for (std::size_t i = 0; i < 6; ++i) {
    Side& peer = hub.peers[i % 2];
    peer.buffer[0] = static_cast<std::byte>(i);
    REQUIRE(peer.post_message(i, {peer.sge(0, 1)}) == 0);
    const ibv_wc received = hub.side.wait();
    CHECK(received.status == IBV_WC_SUCCESS);
    CHECK(received.qp_num == hub.queue_pairs[i % 2]->qp_num);
    CHECK(hub.side.buffer[64 * received.wr_id] == static_cast<std::byte>(i));
    ++seen.at(received.wr_id);
    CHECK(peer.wait().status == IBV_WC_SUCCESS);
  }
  CHECK(seen == std::array<int, 6>{1, 1, 1, 1, 1, 1});
}

TEST_CASE("messages that come in at the same time have a receive each") {
  Hub hub(2 * kLarge);
  for (std::uint64_t id = 0; id < 2; ++id) hub.side.receive(id, kLarge * id, kLarge);
  for (std::size_t i = 0; i < 2; ++i) {
    std::memset(hub.peers[i].buffer.get(), static_cast<int>(i) + 1, kLarge);
    REQUIRE(hub.peers[i].post_message(i, {hub.peers[i].sge(0, kLarge)}) == 0);
  }
  for (int i = 0; i < 2; ++i) {
    const ibv_wc received = hub.side.wait();
    REQUIRE(received.status == IBV_WC_SUCCESS);
    CHECK(received.byte_len == kLarge);
    const auto from = received.qp_num == hub.queue_pairs[0]->qp_num ? 1 : 2;
    const std::byte* const bytes = &hub.side.buffer[kLarge * received.wr_id];
    CHECK(bytes[0] == static_cast<std::byte>(from));
    CHECK(std::memcmp(bytes, bytes + 1, kLarge - 1) == 0);
  }
}

TEST_CASE("a sender waits while a shared queue is empty (RNR)") {
  Hub hub;
  Side& peer = hub.peers[0];
  peer.buffer[0] = std::byte{7};
  REQUIRE(peer.post_message(1, {peer.sge(0, 1)}) == 0);
  CHECK(hub.side.idle());
  hub.side.receive(9, 0, 64);
  const ibv_wc received = hub.side.wait();
  CHECK(received.wr_id == 9);
  CHECK(hub.side.buffer[0] == std::byte{7});
  CHECK(peer.wait().status == IBV_WC_SUCCESS);
}

TEST_CASE("a write with an immediate takes one, a plain write none") {
  Hub hub;
  Side& peer = hub.peers[1];
  hub.side.receive(1);
  const std::uint32_t key = hub.side.mr->rkey;
  REQUIRE(peer.post_rdma(IBV_WR_RDMA_WRITE, 1, peer.sge(0, 8), hub.side.at(0), key) == 0);
  CHECK(peer.wait().status == IBV_WC_SUCCESS);
  CHECK(hub.side.idle());
  REQUIRE(peer.post_rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 2, peer.sge(0, 8), hub.side.at(0), key, 5) ==
          0);
  const ibv_wc received = hub.side.wait();
  CHECK(received.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(received.imm_data == 5);
}

TEST_CASE("a queue pair in error says that it takes no more, and leaves the queue to the others") {
  Hub hub;
  hub.side.receive(1, 0, 64);
  hub.side.qp = hub.queue_pairs[0];
  REQUIRE(hub.side.try_state(IBV_QPS_ERR) == 0);
  ibv_async_event event{};
  REQUIRE(soft().get_async_event(hub.side.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
  CHECK(event.element.qp == hub.queue_pairs[0]);
  soft().ack_async_event(&event);
  CHECK(hub.side.idle());
  REQUIRE(hub.peers[1].post_message(1, {hub.peers[1].sge(0, 8)}) == 0);
  CHECK(hub.side.wait().wr_id == 1);
}

// A Side whose peer has sent the first packet of a message.
struct Interrupted {
  Interrupted() : side() {
    side.destroy_queue_pair();
    side.options.shared = make_queue(side.pd);
    side.create_queue_pair();
    side.receive(3, 0, 64);
    const Forger forger(side.address());
    side.connect(forger.address());
    fd = forger.enter();
    Frame frame;
    wire::Packet packet = packet_of(Op::send);
    packet.nbytes = 8;
    packet.flags = wire::kMore | wire::kInline;
    frame.add(packet);
    frame.add("12345678", 8);
    frame.send(fd);
    // It has come once its bytes have.
    REQUIRE(eventually([&] {
      (void)side.idle();
      return side.buffer[7] == std::byte{'8'};
    }));
  }
  ~Interrupted() {
    if (side.qp != nullptr) side.destroy_queue_pair();
    CHECK(soft().destroy_srq(side.options.shared) == 0);
  }

  Side side;
  zerohop::UniqueFd fd;
};

TEST_CASE("the receive of a message that is cut off is flushed") {
  Interrupted stage;
  REQUIRE(stage.side.try_state(IBV_QPS_ERR) == 0);
  const ibv_wc flushed = stage.side.wait();
  CHECK(flushed.wr_id == 3);
  CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("the receive of a message whose queue pair is destroyed stays in the queue") {
  Interrupted stage;
  stage.side.destroy_queue_pair();
  stage.side.create_queue_pair();
  Side peer;
  connect(stage.side, peer);
  REQUIRE(peer.post_message(1, {peer.sge(0, 8)}) == 0);
  CHECK(stage.side.wait().wr_id == 3);
}

TEST_CASE("what a shared queue cannot be, or do, is refused") {
  Side side;
  CHECK(make_queue(side.pd, 100'000) == nullptr);
  CHECK(errno == EINVAL);
  side.options.shared = make_queue(side.pd, 2);
  CHECK(side.try_receive(1, {}) == 0);
  CHECK(side.try_receive(2, {}) == 0);
  CHECK(side.try_receive(3, {}) == ENOMEM);
  CHECK(side.try_receive(4, {side.sge(0, 1), side.sge(1, 1), side.sge(2, 1)}) == EINVAL);
  side.destroy_queue_pair();
  side.create_queue_pair();
  CHECK(soft().destroy_srq(side.options.shared) == EBUSY);
  ibv_recv_wr work{};
  ibv_recv_wr* bad = nullptr;
  CHECK(ibv_post_recv(side.qp, &work, &bad) == EINVAL);
  CHECK(bad == &work);
  side.destroy_queue_pair();
  CHECK(soft().destroy_srq(side.options.shared) == 0);
}

}  // namespace
