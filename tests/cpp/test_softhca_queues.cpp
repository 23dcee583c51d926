// Completion channels, asynchronous events and shared receive queues of soft0.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "forger.hpp"
#include "soft_side.hpp"

namespace zerohop::testing {
namespace {

using wire::Op;

bool readable(int fd, int timeout_ms = 0) {
  pollfd watched{fd, POLLIN, 0};
  return ::poll(&watched, 1, timeout_ms) == 1;
}

constexpr int kPatienceMs = 20000;
const SideOptions kWithEvents{.events = true};

ibv_cq* take_event(Side& side) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (soft().get_cq_event(side.channel, &cq, &context) != 0) return nullptr;
  CHECK(context == &side);
  soft().ack_cq_events(cq, 1);
  return cq;
}

void make_non_blocking(int fd) { REQUIRE(::fcntl(fd, F_SETFL, O_NONBLOCK) == 0); }

void send_one(Pair& pair, unsigned flags = 0) {
  REQUIRE(pair.a.post(IBV_WR_SEND, 1, {}, [&](ibv_send_wr& work) {
    work.send_flags = IBV_SEND_SIGNALED | flags;
  }) == 0);
}

TEST_CASE("an armed queue wakes its sleeping owner, once") {
  Pair pair({}, kWithEvents);
  pair.b.receive(1);
  pair.b.receive(2);
  REQUIRE(ibv_req_notify_cq(pair.b.cq, 0) == 0);
  CHECK_FALSE(readable(pair.b.channel->fd));
  send_one(pair);
  CHECK(take_event(pair.b) == pair.b.cq);  // blocks
  CHECK(pair.b.wait().wr_id == 1);
  send_one(pair);
  CHECK(pair.b.wait().wr_id == 2);
  CHECK_FALSE(readable(pair.b.channel->fd));  // not armed any more
}

TEST_CASE("a queue armed for solicited completions wakes for those and for errors only") {
  Pair pair({}, kWithEvents);
  for (int i = 1; i <= 3; ++i) pair.b.receive(static_cast<std::uint64_t>(i));
  REQUIRE(ibv_req_notify_cq(pair.b.cq, 1) == 0);
  send_one(pair);
  CHECK(pair.b.wait().wr_id == 1);
  CHECK_FALSE(readable(pair.b.channel->fd));
  send_one(pair, IBV_SEND_SOLICITED);
  CHECK(readable(pair.b.channel->fd, kPatienceMs));
  CHECK(take_event(pair.b) == pair.b.cq);
  CHECK(pair.b.wait().wr_id == 2);
  REQUIRE(ibv_req_notify_cq(pair.b.cq, 1) == 0);
  REQUIRE(pair.b.try_state(IBV_QPS_ERR) == 0);
  CHECK(take_event(pair.b) == pair.b.cq);
  CHECK(pair.b.wait().status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("a non-blocking channel says EAGAIN") {
  Side side(kWithEvents);
  make_non_blocking(side.channel->fd);
  CHECK(take_event(side) == nullptr);
  CHECK(errno == EAGAIN);
  make_non_blocking(side.context->async_fd);
  ibv_async_event event;
  CHECK(soft().get_async_event(side.context, &event) == -1);
  CHECK(errno == EAGAIN);
}

TEST_CASE("a completion queue with untaken events can be destroyed, and they vanish") {
  Pair pair({}, kWithEvents);
  ibv_cq* second = soft().create_cq(pair.b.context, 4, nullptr, pair.b.channel, 0);
  ibv_cq* first = pair.b.cq;
  pair.b.receive(1);
  REQUIRE(ibv_req_notify_cq(first, 0) == 0);
  send_one(pair);
  REQUIRE(readable(pair.b.channel->fd, kPatienceMs));
  pair.b.destroy_queue_pair();
  REQUIRE(soft().destroy_cq(first) == 0);
  CHECK_FALSE(readable(pair.b.channel->fd));
  pair.b.cq = second;
}

TEST_CASE("destroying waits for events that were taken and not acknowledged") {
  Pair pair({}, kWithEvents);
  pair.b.receive(1);
  REQUIRE(ibv_req_notify_cq(pair.b.cq, 0) == 0);
  send_one(pair);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  REQUIRE(soft().get_cq_event(pair.b.channel, &cq, &context) == 0);
  REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, 8), 0, 0) == 0);
  ibv_async_event event;
  REQUIRE(soft().get_async_event(pair.b.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR);
  CHECK(event.element.qp == pair.b.qp);
  std::atomic<bool> acknowledged{false};
  std::thread late([&] {
    acknowledged = true;
    soft().ack_async_event(&event);
  });
  pair.b.destroy_queue_pair();
  CHECK(acknowledged);
  late.join();
  acknowledged = false;
  std::thread later([&] {
    acknowledged = true;
    soft().ack_cq_events(cq, 1);
  });
  REQUIRE(soft().destroy_cq(cq) == 0);
  CHECK(acknowledged);
  later.join();
  pair.b.cq = soft().create_cq(pair.b.context, 4, nullptr, pair.b.channel, 0);
}

TEST_CASE("a target that never polls is served") {
  Pair pair;
  auto* word = reinterpret_cast<std::uint64_t*>(pair.b.buffer.get());
  pair.a.buffer[0] = std::byte{7};
  for (int i = 0; i < 20; ++i) {
    pair.a.rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, 8), pair.b);
    CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
    REQUIRE(pair.a.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, pair.a.sge(8, 8), pair.b.at(0),
                               pair.b.mr->rkey, 1) == 0);
    CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  }
  CHECK(*word == 8);
}

TEST_CASE("a request is acknowledged although its receiver polls once and goes away") {
  Pair pair;
  for (int i = 0; i < 20; ++i) {
    pair.b.receive(1);
    send_one(pair);
    CHECK(pair.b.wait().wr_id == 1);  // b is not polled again in this round
    CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  }
}

TEST_CASE("many threads poll one completion queue and each completion is seen once") {
  Pair pair({.depth = 512, .completions = 4096});
  constexpr int kThreads = 3;
  constexpr int kMessages = 1000;
  std::atomic<int> seen{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> pollers;
  for (int i = 0; i < kThreads; ++i) {
    pollers.emplace_back([&] {
      ibv_wc completion;
      while (!stop) {
        if (ibv_poll_cq(pair.b.cq, 1, &completion) == 1) {
          if (completion.status == IBV_WC_SUCCESS) ++seen;
          pair.b.receive(1);
        }
      }
    });
  }
  for (int i = 0; i < 400; ++i) pair.b.receive(1);
  for (int i = 0; i < kMessages; ++i) {
    send_one(pair);
    CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  }
  // The last one is acknowledged once it is in the queue, which may be before a poller takes it.
  CHECK(eventually([&] { return seen == kMessages; }));
  stop = true;
  for (auto& poller : pollers) poller.join();
  CHECK(seen == kMessages);  // and none twice
}

void send_ten(Pair& pair) {
  for (int i = 0; i < 10; ++i) pair.b.receive(static_cast<std::uint64_t>(i));
  for (int i = 0; i < 10; ++i) send_one(pair);
  for (int i = 0; i < 10; ++i) REQUIRE(pair.a.wait().status == IBV_WC_SUCCESS);
}

TEST_CASE("a queue does not shrink below what it holds") {
  Pair pair;
  send_ten(pair);
  CHECK(soft().resize_cq(pair.b.cq, 5) == EINVAL);
  for (int i = 0; i < 10; ++i) CHECK(pair.b.wait().wr_id == static_cast<std::uint64_t>(i));
}

TEST_CASE("a queue can grow and not lose what it holds") {
  Pair pair;
  send_ten(pair);
  CHECK(soft().resize_cq(pair.b.cq, 10000) == 0);
  CHECK(pair.b.cq->cqe >= 10000);
  for (int i = 0; i < 10; ++i) CHECK(pair.b.wait().wr_id == static_cast<std::uint64_t>(i));
}

// --- shared receive queues: several queue pairs take from one ---

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
  UniqueFd fd;
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
}  // namespace zerohop::testing
