// The calls of kernels through a ring, by CPU threads: the software HCA executes what they write,
// like an adapter, with nothing in between.
#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "cpu_words.hpp"
#include "direct_side.hpp"
#include "zerohop/ring_way.h"

namespace zerohop::testing {
namespace {

using device::Status;
using device::Ticket;

constexpr std::uint64_t kPatienceNs = 20'000'000'000;

template <typename T>
std::uint64_t address(const T* at) {
  return reinterpret_cast<std::uint64_t>(at);
}

// The arrays are the buffers of both sides; the remote one is followed by its notes.
struct Direct {
  static constexpr std::uint32_t kSlots = 16;
  DirectPair pair;
  device::RingState state;
  std::uint64_t nbytes = pair.b.options.nbytes - kSlots * sizeof(std::uint32_t);
  std::vector<std::uint64_t> results = std::vector<std::uint64_t>(pair.a.sends.qp.sq.wqe_cnt);
  std::vector<std::uint32_t> claims = std::vector<std::uint32_t>(results.size());
  ibv_mr* results_mr =
      soft().reg_mr(pair.a.side.pd, results.data(), 8 * results.size(), IBV_ACCESS_LOCAL_WRITE);
  device::Queue queue{.local = pair.a.side.at(0),
                      .local_nbytes = nbytes,
                      .remote = pair.b.at(0),
                      .remote_nbytes = nbytes,
                      .notes = pair.b.at(nbytes)};
  device::RingWay way = make_way();
  device::RingCalls<CpuWords> calls{way};

  Direct() { REQUIRE(results_mr != nullptr); }
  ~Direct() { CHECK(soft().dereg_mr(results_mr) == 0); }
  Direct(const Direct&) = delete;
  Direct& operator=(const Direct&) = delete;

  device::RingWay make_way() {
    const mlx5dv_qp& qp = pair.a.sends.qp;
    const mlx5dv_cq& cq = pair.a.completions.cq;
    device::RingWay made;
    made.ring = {.entries = address(qp.sq.buf),
                 .record = address(&qp.dbrec[MLX5_SND_DBR]),
                 .doorbell = address(qp.bf.reg),
                 .completions = address(cq.buf),
                 .consumed = address(&cq.dbrec[0]),
                 .state = address(&state),
                 .queue_pair = pair.a.sends.qp_number,
                 .blocks = qp.sq.wqe_cnt,
                 .places = cq.cqe_cnt};
    made.results = address(results.data());
    made.claims = address(claims.data());
    made.local = queue.local;
    made.remote = queue.remote;
    made.notes = queue.notes;
    made.patience = kPatienceNs;
    made.results_key = results_mr->lkey;
    made.local_key = pair.a.side.mr->lkey;
    made.remote_key = made.notes_key = pair.b.mr->rkey;
    return made;
  }
  std::uint32_t note(std::uint32_t slot) const {
    auto* at = reinterpret_cast<std::uint32_t*>(queue.notes) + slot;
    return std::atomic_ref(*at).load(std::memory_order_acquire);
  }
  void await(std::uint32_t slot, std::uint32_t expected) const {
    const auto end = Clock::now() + kPatience;
    while (note(slot) != expected && Clock::now() < end) std::this_thread::yield();
    REQUIRE(note(slot) == expected);
  }
  void done(Ticket ticket) const { REQUIRE(calls.wait(ticket, kPatienceNs) == Status::ok); }
};

TEST_CASE_FIXTURE(Direct, "put, get, put_value and notify") {
  fill(pair.a.side, 0, 500, 3);
  Ticket ticket;
  REQUIRE(calls.put(100, 0, 500, ticket) == Status::ok);
  done(ticket);
  CHECK(is_filled(pair.b, 100, 500, 3));
  REQUIRE(calls.get(100, 600, 500, ticket) == Status::ok);
  done(ticket);
  CHECK(is_filled(pair.a.side, 600, 500, 3));
  const std::uint32_t value = 77;
  REQUIRE(calls.put_value(4, &value, sizeof value, ticket) == Status::ok);
  done(ticket);
  CHECK(std::memcmp(&pair.b.buffer[4], &value, sizeof value) == 0);
  REQUIRE(calls.notify(3, 9, ticket) == Status::ok);
  await(3, 9);
}

TEST_CASE_FIXTURE(Direct, "a note comes behind its data, many times around the ring") {
  const std::uint32_t rounds = 3 * way.ring.blocks;
  Ticket ticket;
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    fill(pair.a.side, 0, 300, round);
    REQUIRE(calls.put_notify(0, 0, 300, 1, round, ticket) == Status::ok);
    await(1, round);
    REQUIRE(is_filled(pair.b, 0, 300, round));
    done(ticket);
  }
}

TEST_CASE_FIXTURE(Direct, "what the adapter refuses fails all that follows") {
  way.remote_key += 99;
  Ticket ticket;
  REQUIRE(calls.put(0, 0, 8, ticket) == Status::ok);
  CHECK(calls.wait(ticket, kPatienceNs) == Status::failed);
  CHECK(calls.put(0, 0, 8, ticket) == Status::failed);
  std::uint64_t old = 0;
  CHECK(calls.fetch_add(0, 1, old) == Status::failed);
}

}  // namespace
}  // namespace zerohop::testing
