// The benchmark's loops on bare queue pairs of soft0: they move what they time, and end in time.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "rdma/loops.hpp"
#include "rdma/memory_region.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::rdma {
namespace {

constexpr double kPatience = 20.0;  // seconds, for what must happen
constexpr std::size_t kNbytes = 4096;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC;

Deadline within(double seconds) { return Deadline::after(Deadline::Seconds(seconds)); }

struct End {
  std::shared_ptr<Device> device = Device::open(softhca::verbs(), "soft0");
  std::shared_ptr<ProtectionDomain> domain = ProtectionDomain::create(device);
  std::shared_ptr<CompletionQueue> sends = CompletionQueue::create(device, 256);
  std::shared_ptr<CompletionQueue> receives = CompletionQueue::create(device, 256);
  std::array<std::unique_ptr<QueuePair>, 2> pairs{QueuePair::create(domain, sends, receives),
                                                  QueuePair::create(domain, sends, receives)};
  alignas(8) std::array<std::uint8_t, kNbytes> bytes{};
  std::shared_ptr<MemoryRegion> region =
      MemoryRegion::create(domain, bytes.data(), bytes.size(), kAccess);

  ibv_sge element(std::size_t nbytes, std::size_t offset = 0) const {
    return {region->address() + offset, static_cast<std::uint32_t>(nbytes), region->lkey()};
  }
};

struct Fixture {
  End here, there;

  Fixture() {
    for (std::size_t i = 0; i < here.pairs.size(); ++i) {
      here.pairs[i]->connect(there.pairs[i]->address());
      there.pairs[i]->connect(here.pairs[i]->address());
    }
  }
  // To `offset` at the other end.
  static ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& element, const End& target,
                             std::size_t offset = 0) {
    ibv_send_wr made{};
    made.opcode = opcode;
    made.send_flags = IBV_SEND_SIGNALED;
    made.sg_list = &element;
    made.num_sge = 1;
    made.wr.rdma.remote_addr = target.region->address() + offset;
    made.wr.rdma.rkey = target.region->rkey();
    return made;
  }
};

bool all_positive(const std::vector<double>& seconds) {
  return std::ranges::all_of(seconds, [](double each) { return each > 0; });
}

TEST_CASE_FIXTURE(Fixture, "each request is timed from its post to its completion") {
  here.bytes.fill(7);
  ibv_sge element = here.element(64);
  std::vector<double> seconds(20);
  post_and_poll(*here.pairs[0], *here.sends, request(IBV_WR_RDMA_WRITE, element, there), seconds,
                within(kPatience));
  CHECK(all_positive(seconds));
  CHECK(there.bytes[63] == 7);
  CHECK(there.bytes[64] == 0);
}

TEST_CASE_FIXTURE(Fixture, "requests in flight take turns over all queue pairs") {
  ibv_sge element = here.element(8);
  ibv_send_wr add = request(IBV_WR_ATOMIC_FETCH_AND_ADD, element, there);
  add.wr.atomic.remote_addr = there.region->address();
  add.wr.atomic.rkey = there.region->rkey();
  add.wr.atomic.compare_add = 1;
  const std::array<QueuePair*, 2> both{here.pairs[0].get(), here.pairs[1].get()};
  CHECK(keep_posted(both, *here.sends, add, 101, 8, within(kPatience)) > 0);
  CHECK(*reinterpret_cast<std::uint64_t*>(there.bytes.data()) == 101);
}

TEST_CASE_FIXTURE(Fixture, "a receiver posts again until all messages have come") {
  constexpr std::uint64_t kTimes = 300, kPosted = 16;
  here.bytes.fill(9);
  ibv_sge landing = there.element(8, 128);
  ibv_recv_wr receive{};
  receive.sg_list = &landing;
  receive.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  for (std::uint64_t i = 0; i < kPosted; ++i) {
    ibv_recv_wr posted = receive;
    REQUIRE(there.pairs[0]->post_receive(posted, &bad) == 0);
  }
  double received = 0;
  std::thread receiver([&] {
    received = keep_receiving(*there.pairs[0], *there.receives, receive, kTimes, kPosted,
                              within(kPatience));
  });
  ibv_sge element = here.element(8);
  QueuePair* const one = here.pairs[0].get();
  const double sent = keep_posted({&one, 1}, *here.sends, request(IBV_WR_SEND, element, there),
                                  kTimes, kPosted, within(kPatience));
  receiver.join();
  CHECK(sent > 0);
  CHECK(received > 0);
  CHECK(there.bytes[135] == 9);
  std::array<ibv_wc, 1> more;
  CHECK(there.receives->poll(more) == 0);
}

TEST_CASE_FIXTURE(Fixture, "both ends of a ping-pong time every round and leave the landing at 0") {
  constexpr std::size_t kSize = 16, kLanding = 256;
  std::vector<double> first(300), second(300);
  const auto play = [&](End& end, const End& other, bool begins, std::vector<double>& seconds) {
    ibv_sge element = end.element(kSize);
    const ibv_send_wr ball = request(IBV_WR_RDMA_WRITE, element, other, kLanding);
    ping_pong({*end.pairs[0], *end.sends, ball, end.bytes[kSize - 1],
               end.bytes[kLanding + kSize - 1], begins},
              seconds, within(kPatience));
  };
  std::thread partner([&] { play(there, here, false, second); });
  play(here, there, true, first);
  partner.join();
  CHECK(all_positive(first));
  CHECK(all_positive(second));
  CHECK(here.bytes[kLanding + kSize - 1] == 0);
}

TEST_CASE_FIXTURE(Fixture,
                  "a ball that does not come back, and a message that does not come, end") {
  ibv_sge element = here.element(8);
  const ibv_send_wr ball = request(IBV_WR_RDMA_WRITE, element, there, 256);
  std::vector<double> seconds(2);
  CHECK_THROWS_AS(
      ping_pong({*here.pairs[0], *here.sends, ball, here.bytes[7], here.bytes[263], true}, seconds,
                within(0.05)),
      TransferTimeout);
  CHECK_THROWS_AS(keep_receiving(*here.pairs[0], *here.receives, {}, 1, 1, within(0.05)),
                  TransferTimeout);
}

TEST_CASE_FIXTURE(Fixture, "a request that is refused is an error with its code") {
  ibv_sge element = here.element(8);
  ibv_send_wr beyond = request(IBV_WR_RDMA_WRITE, element, there, kNbytes);
  std::vector<double> seconds(1);
  try {
    post_and_poll(*here.pairs[0], *here.sends, beyond, seconds, within(kPatience));
    FAIL("it was not refused");
  } catch (const VerbsError& error) {
    CHECK(error.code() == IBV_WC_REM_ACCESS_ERR);
  }
  here.pairs[1]->to_reset();
  CHECK_THROWS_AS(post_and_poll(*here.pairs[1], *here.sends, beyond, seconds, within(kPatience)),
                  VerbsError);
}

}  // namespace
}  // namespace zerohop::rdma
