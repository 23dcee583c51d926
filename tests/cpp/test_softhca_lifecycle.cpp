// Ends at the wrong moment: memory, queue pairs and processes that go away while soft0 works,
// forks, and many queue pairs at once.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "process.hpp"
#include "soft_side.hpp"

using namespace zerohop::testing;

namespace {

constexpr std::size_t kLarge = 64 << 20;

// Starts `body` in a child process that shares a socket with this one. If the child is to use
// soft0, nothing of soft0 may exist in this process yet.
template <typename Body>
pid_t start(int (&sockets)[2], Body body) {
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(sockets[0]);
    ::_exit(body(sockets[1]));
  }
  ::close(sockets[1]);
  return child;
}

template <typename T>
bool put(int fd, const T& value) {
  return ::write(fd, &value, sizeof value) == sizeof value;
}
template <typename T>
bool get(int fd, T& value) {
  return ::recv(fd, &value, sizeof value, MSG_WAITALL) == sizeof value;
}

// Registered memory in pages of its own, which become inaccessible when it goes: a late access
// would crash.
struct Pages {
  explicit Pages(const Side& side, int access = IBV_ACCESS_LOCAL_WRITE)
      : data(::mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        region(soft().reg_mr(side.pd, data, kLarge, access)) {
    REQUIRE(region != nullptr);
  }
  ~Pages() { ::munmap(data, kLarge); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  ibv_sge sge() const { return {reinterpret_cast<std::uint64_t>(data), kLarge, region->lkey}; }
  void deregister() const { REQUIRE(soft().dereg_mr(region) == 0); }
  void forbid() const { REQUIRE(::mprotect(data, kLarge, PROT_NONE) == 0); }

  void* data;
  ibv_mr* region;
};

struct Hand {
  Address address;
  std::uint64_t at;
  std::uint32_t rkey;
};

Hand hand_of(const Side& side) { return {side.address(), side.at(0), side.mr->rkey}; }

}  // namespace

TEST_CASE("deregistered memory is not touched any more, whatever is in progress") {
  for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    for (int round = 0; round < 4; ++round) {
      Pair pair({.nbytes = kLarge}, {.nbytes = 4096});
      const Pages pages(pair.b, pair.b.options.memory_access);
      REQUIRE(pair.a.post_rdma(opcode, 1, pair.a.sge(0, kLarge), pages.sge().addr,
                               pages.region->rkey) == 0);
      const auto start = Clock::now() + std::chrono::milliseconds(2 * round);
      while (Clock::now() < start) CHECK(pair.a.idle());
      pages.deregister();
      pages.forbid();
      CHECK(pair.a.wait().status != IBV_WC_SUCCESS);
    }
  }
}

TEST_CASE("local memory that is deregistered during a request fails it") {
  Pair pair({.nbytes = kLarge}, {.nbytes = kLarge});
  for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    const Pages pages(pair.a);
    pair.a.rdma(opcode, 1, pages.sge(), pair.b);
    pages.deregister();
    pages.forbid();
    CHECK(pair.a.wait().status == IBV_WC_LOC_PROT_ERR);
    for (Side* side : {&pair.a, &pair.b}) REQUIRE(side->try_state(IBV_QPS_RESET) == 0);
    connect(pair.a, pair.b);
  }
}

TEST_CASE("memory that is unmapped but still registered fails the request, not the process") {
  Pair pair({.nbytes = kLarge}, {.nbytes = kLarge});
  const Pages pages(pair.a);
  pages.forbid();
  pair.a.rdma(IBV_WR_RDMA_WRITE, 1, pages.sge(), pair.b);
  CHECK(pair.a.wait().status == IBV_WC_LOC_PROT_ERR);
  pages.deregister();
}

TEST_CASE("queue pairs are destroyed in the middle of everything") {
  for (int round = 0; round < 12; ++round) {
    Pair pair({.nbytes = kLarge / 4}, {.nbytes = kLarge / 4});
    auto post = [&pair, rkey = pair.b.mr->rkey, i = 0]() mutable {
      REQUIRE(pair.a.post_rdma(i++ % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 1,
                               pair.a.sge(0, kLarge / 4), pair.b.at(0), rkey) == 0);
    };
    for (int i = 0; i < 4; ++i) post();
    const auto start = Clock::now() + std::chrono::microseconds(300 * round);
    while (Clock::now() < start) {
      if (!pair.a.idle()) post();  // one is done: four are in flight again
    }
    Side& victim = round % 2 == 0 ? pair.a : pair.b;
    victim.destroy_queue_pair();
    victim.deregister();
    if (&victim == &pair.b) {
      ibv_wc done = pair.a.wait();
      for (; done.status == IBV_WC_SUCCESS; done = pair.a.wait()) post();
      // Flushed: the end was seen between the last completion and the next request.
      CHECK((done.status == IBV_WC_RETRY_EXC_ERR || done.status == IBV_WC_WR_FLUSH_ERR));
    }
  }
}

TEST_CASE("destroy races with pollers and with the peer's traffic") {
  ibv_context* context = open_soft0();
  for (int round = 0; round < 30; ++round) {
    Side a({}, context);
    Side b({}, context);
    connect(a, b);
    std::atomic<bool> stop{false};
    std::thread poller([&] {
      ibv_wc completion;
      while (!stop) ibv_poll_cq(a.cq, 1, &completion);
    });
    for (int i = 0; i < 20; ++i) {
      a.post_rdma(IBV_WR_RDMA_WRITE, 1, a.sge(0, 4096), b.at(0), b.mr->rkey);
      b.post_rdma(IBV_WR_RDMA_READ, 1, b.sge(0, 4096), a.at(0), a.mr->rkey);
    }
    if (round % 2 == 0) b.destroy_queue_pair();
    a.destroy_queue_pair();
    stop = true;
    poller.join();
  }
  CHECK(soft().close_device(context) == 0);
}

TEST_CASE("two processes exchange data; the death of one is noticed at once by the other") {
  int sockets[2];
  const pid_t child = start(sockets, [](int fd) {
    Side side({.nbytes = kLarge});
    Hand peer;
    if (!put(fd, hand_of(side)) || !get(fd, peer)) return 1;
    side.connect(peer.address);
    // Serves until it is killed: the device makes progress itself.
    ::pause();
    return 2;
  });
  Side side({.nbytes = kLarge});
  Hand peer;
  REQUIRE(get(sockets[0], peer));
  REQUIRE(put(sockets[0], hand_of(side)));
  side.connect(peer.address);
  REQUIRE(side.post_rdma(IBV_WR_RDMA_WRITE, 1, side.sge(0, kLarge), peer.at, peer.rkey) == 0);
  CHECK(side.wait().status == IBV_WC_SUCCESS);
  for (int i = 0; i < 60; ++i) {
    REQUIRE(side.post_rdma(IBV_WR_RDMA_READ, 2, side.sge(0, kLarge), peer.at, peer.rkey) == 0);
  }
  CHECK(side.wait().status == IBV_WC_SUCCESS);
  REQUIRE(::kill(child, SIGKILL) == 0);
  CHECK(exit_code(child) == 128 + SIGKILL);
  const auto start = Clock::now();
  ibv_wc done = side.wait();
  while (done.status == IBV_WC_SUCCESS) done = side.wait();
  CHECK(done.status == IBV_WC_RETRY_EXC_ERR);
  CHECK(Clock::now() - start < std::chrono::seconds(2));
  while (done.status != IBV_WC_WR_FLUSH_ERR) done = side.wait();
  CHECK(side.state() == IBV_QPS_ERR);
  ::close(sockets[0]);
}

TEST_CASE("a forked child cannot touch its parent's objects and does not keep them alive") {
  auto pair = std::make_unique<Pair>();
  int sockets[2];
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  Pair& both = *pair;
  const pid_t child = start(sockets, [&](int fd) {
    ibv_wc completion;
    ibv_gid gid;
    ibv_async_event event;
    int failures = 0;
    const auto expect = [&](bool holds) { failures += holds ? 0 : 1; };
    expect(ibv_poll_cq(both.a.cq, 1, &completion) < 0);
    expect(ibv_req_notify_cq(both.a.cq, 0) != 0);
    expect(both.a.post_message(1, {}) != 0);
    expect(both.a.try_receive(1, {}) != 0);
    expect(soft().query_qp(both.a.qp, &attr, 0, &init) != 0);
    expect(soft().modify_qp(both.a.qp, &attr, IBV_QP_STATE) != 0);
    expect(soft().query_gid(both.a.context, 1, 0, &gid) == -1);
    expect(soft().alloc_pd(both.a.context) == nullptr);
    expect(soft().create_cq(both.a.context, 1, nullptr, nullptr, 0) == nullptr);
    expect(soft().create_qp(both.a.pd, &init) == nullptr);
    expect(soft().reg_mr(both.a.pd, &gid, sizeof gid, 0) == nullptr);
    expect(soft().get_async_event(both.a.context, &event) == -1);
    expect(soft().destroy_qp(both.a.qp) == 0);
    expect(soft().dereg_mr(both.a.mr) == 0);
    expect(soft().destroy_cq(both.a.cq) == 0);
    expect(soft().dealloc_pd(both.a.pd) == 0);
    expect(soft().close_device(both.a.context) == 0);
    put(fd, failures);
    char last;
    get(fd, last);  // stays until the parent has seen that its connections end without this process
    return failures;
  });
  int failures = -1;
  REQUIRE(get(sockets[0], failures));
  CHECK(failures == 0);
  // The parent's pair keeps working, and the end of one side reaches the other although the child
  // lives.
  both.b.receive(1, 0, 8);
  REQUIRE(both.a.post_message(2, {both.a.sge(0, 8)}) == 0);
  CHECK(both.b.wait().wr_id == 1);
  CHECK(both.a.wait().wr_id == 2);
  both.a.receive(3);
  both.b.destroy_queue_pair();
  CHECK(both.a.wait().status == IBV_WC_WR_FLUSH_ERR);
  put(sockets[0], 'x');
  CHECK(exit_code(child) == 0);
  ::close(sockets[0]);
}

// ThreadSanitizer otherwise ends every child of a process with threads; these children start their
// own.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
