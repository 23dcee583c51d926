// Completion channels and asynchronous events of soft0.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>

#include <thread>

#include "soft_side.hpp"

using namespace zerohop::testing;

namespace {

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

}  // namespace

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
    REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, 8), pair.b.at(0),
                             pair.b.mr->rkey) == 0);
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

TEST_CASE("a queue can grow and not lose what it holds") {
  Pair pair;
  for (int i = 0; i < 10; ++i) pair.b.receive(static_cast<std::uint64_t>(i));
  for (int i = 0; i < 10; ++i) send_one(pair);
  for (int i = 0; i < 10; ++i) REQUIRE(pair.a.wait().status == IBV_WC_SUCCESS);
  CHECK(soft().resize_cq(pair.b.cq, 5) == EINVAL);
  CHECK(soft().resize_cq(pair.b.cq, 10000) == 0);
  CHECK(pair.b.cq->cqe == 10000);
  for (int i = 0; i < 10; ++i) CHECK(pair.b.wait().wr_id == static_cast<std::uint64_t>(i));
}
