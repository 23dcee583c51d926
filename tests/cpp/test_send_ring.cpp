// Many threads share a queue in the mlx5 layout, as kernels will: CPU threads and the software HCA,
// with the very code of the header for kernels.
#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "cpu_words.hpp"
#include "direct_side.hpp"
#include "zerohop/send_ring.h"

using namespace zerohop::testing;
namespace device = zerohop::device;
namespace mlx5_entries = zerohop::device::mlx5;
using device::Status;

namespace {

using User = device::RingUser<CpuWords>;

constexpr std::uint64_t kPatienceNs = 20'000'000'000;

device::SendRing ring_of(const DirectSide& side, device::RingState& state) {
  const auto address = [](const auto* at) { return reinterpret_cast<std::uint64_t>(at); };
  const mlx5dv_qp& qp = side.sends.qp;
  const mlx5dv_cq& cq = side.completions.cq;
  return {.entries = address(qp.sq.buf),
          .record = address(&qp.dbrec[MLX5_SND_DBR]),
          .doorbell = address(qp.bf.reg),
          .completions = address(cq.buf),
          .consumed = address(&cq.dbrec[0]),
          .state = address(&state),
          .queue_pair = side.sends.qp_number,
          .blocks = qp.sq.wqe_cnt,
          .places = cq.cqe_cnt};
}

struct Ring {
  DirectPair pair;
  device::RingState state;
  device::SendRing ring = ring_of(pair.a, state);
  User user{ring};

  // `count` writes of 8 bytes, the last one signaled, in one go, as a warp makes them.
  Status write(std::uint32_t first, std::uint32_t count, device::Ticket& ticket,
               std::uint64_t patience = kPatienceNs) {
    const auto fill = [&](std::uint32_t index, std::uint32_t flags, std::uint32_t i) {
      const std::uint64_t value = value_of(first + i);
      const mlx5_entries::Range to{pair.b.at(8 * (first + i)), pair.b.mr->rkey};
      return mlx5_entries::write_inline({ring.queue_pair, index, flags}, to, &value, sizeof value);
    };
    return user.post(count, patience, fill, ticket);
  }
  static std::uint64_t value_of(std::uint32_t number) { return 0x1234'5678'9abc'def0 ^ number; }
  bool has(std::uint32_t number) const {
    std::uint64_t found = 0;
    std::memcpy(&found, &pair.b.buffer[8 * number], sizeof found);
    return found == value_of(number);
  }
};

TEST_CASE("threads share a ring that goes round many times") {
  Ring shared;
  const std::uint32_t room = static_cast<std::uint32_t>(shared.pair.b.options.nbytes / 8);
  constexpr std::uint32_t kThreads = 4;
  const std::uint32_t each = room / kThreads;
  for (const std::uint32_t batch : {1U, 2U, std::min(32U, shared.ring.blocks / 2)}) {
    std::fill_n(shared.pair.b.buffer.get(), shared.pair.b.options.nbytes, std::byte{0});
    std::atomic<int> failures = 0;
    std::vector<std::thread> threads;
    for (std::uint32_t number = 0; number < kThreads; ++number) {
      threads.emplace_back([&, number] {
        device::Ticket last;
        for (std::uint32_t i = 0; i + batch <= each; i += batch) {
          if (shared.write(number * each + i, batch, last) != Status::ok) ++failures;
        }
        if (shared.user.wait(last, kPatienceNs) != Status::ok) ++failures;
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE(failures == 0);
    CHECK(shared.state.counts.done == shared.state.counts.reserved);
    CHECK(shared.state.counts.reserved > 4 * shared.ring.blocks);
    for (std::uint32_t i = 0; i < kThreads * (each / batch * batch); ++i) {
      const std::uint32_t number = i / (each / batch * batch) * each + i % (each / batch * batch);
      REQUIRE(shared.has(number));
    }
  }
}

TEST_CASE("a ring without room ends a wait in time, and has room later") {
  DirectSide idle;  // not connected: nothing is executed
  device::RingState state;
  const device::SendRing ring = ring_of(idle, state);
  const User user(ring);
  std::uint32_t index = 0;
  REQUIRE(user.reserve(ring.blocks, 0, index) == Status::ok);
  CHECK(user.reserve(1, 20'000'000, index) == Status::timed_out);
  CHECK(user.wait({ring.blocks}, 20'000'000) == Status::timed_out);
  CHECK(state.counts.reserved == ring.blocks);
}

TEST_CASE("an entry that fails is seen by all") {
  Ring ring;
  device::Ticket ticket;
  REQUIRE(ring.write(0, 1, ticket) == Status::ok);
  REQUIRE(ring.user.wait(ticket, kPatienceNs) == Status::ok);
  std::uint32_t index = 0;
  REQUIRE(ring.user.reserve(1, kPatienceNs, index) == Status::ok);
  const std::uint64_t value = 1;
  const auto wrong =
      mlx5_entries::write_inline({.queue_pair = ring.ring.queue_pair, .index = index},
                                 {ring.pair.b.at(0), ring.pair.b.mr->rkey + 99}, &value, 8);
  ring.user.write(index, wrong);
  ticket = ring.user.submit(index, 1, wrong.doorbell());
  CHECK(ring.user.wait(ticket, kPatienceNs) == Status::failed);
  CHECK(ring.write(1, 1, ticket) == Status::failed);
  CHECK(ring.has(0));
}

}  // namespace
