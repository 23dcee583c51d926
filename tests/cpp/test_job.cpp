#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "engine/path/verbs/job.hpp"
#include "random_layout.hpp"

using namespace zerohop;
using namespace zerohop::engine;
using namespace zerohop::testing;

namespace {

constexpr ibv_sge kNoResult{};

struct Posted {
  std::map<std::uint64_t, std::uint64_t> bytes;  // local -> remote
  std::size_t requests = 0;
  std::size_t inlined = 0;
};

// Executes the chain like an adapter: walks the elements of each request along its remote range.
void execute(WorkChain& chain, const JobLimits& limits, Posted& posted) {
  if (chain.size() == 0) return;
  for (const ibv_send_wr* request = &chain.front(); request != nullptr; request = request->next) {
    ++posted.requests;
    REQUIRE(request->num_sge <= static_cast<int>(limits.max_sge));
    std::uint64_t remote = request->wr.rdma.remote_addr;
    std::uint64_t total = 0;
    for (int i = 0; i < request->num_sge; ++i) {
      const ibv_sge& element = request->sg_list[i];
      REQUIRE(element.lkey == 7);
      REQUIRE(request->wr.rdma.rkey == 9);
      for (std::uint32_t byte = 0; byte < element.length; ++byte) {
        REQUIRE(posted.bytes.emplace(element.addr + byte, remote + byte).second);
      }
      remote += element.length;
      total += element.length;
    }
    REQUIRE(total > 0);
    REQUIRE(total <= limits.max_message);
    if ((request->send_flags & IBV_SEND_INLINE) != 0) {
      ++posted.inlined;
      REQUIRE(total <= limits.inline_bytes);
    }
  }
}

Posted post_all(Job& job, const JobLimits& limits, Generator& generator) {
  Posted posted;
  while (!job.data_done()) {
    WorkChain chain(static_cast<std::uint32_t>(pick(generator, 1, 40)), limits.max_sge);
    job.fill(chain, limits, kNoResult);
    const bool nothing_left = job.data_done();
    REQUIRE((chain.size() > 0 || nothing_left));
    execute(chain, limits, posted);
  }
  return posted;
}

std::map<std::uint64_t, std::uint64_t> expected(const std::vector<Piece>& pieces) {
  std::map<std::uint64_t, std::uint64_t> bytes;
  for (const Piece& piece : pieces) {
    const auto local = element_addresses(piece.local);
    const auto remote = element_addresses(piece.remote);
    if (piece.local.count() == 0) continue;
    for (std::size_t i = 0; i < local.size(); ++i) {
      for (std::uint32_t b = 0; b < piece.local.itemsize(); ++b)
        bytes[local[i] + b] = remote[i] + b;
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("writes that are read back end with a read of their last byte") {
  const ibv_sge result{.addr = 4096, .length = 8, .lkey = 5};
  const JobLimits limits{.max_sge = 1, .inline_bytes = 0, .max_message = 100};
  const auto piece = [](std::uint64_t local, std::uint64_t remote, std::int64_t count) {
    const DType dtype = DType::parse("uint8");
    return Piece{.local = Layout::contiguous(local, dtype, {&count, 1}),
                 .remote = Layout::contiguous(remote, dtype, {&count, 1}),
                 .lkey = 7,
                 .rkey = 9};
  };
  for (const std::uint32_t room : {1u, 2u, 3u, 4u, 16u}) {
    Job job(nullptr, IBV_WR_RDMA_WRITE);
    job.add(piece(1000, 2000, 250));
    job.add(piece(1500, 3000, 40));
    job.add(piece(1600, 4000, 0));
    job.read_back();
    std::vector<ibv_wr_opcode> opcodes;
    ibv_send_wr last{};
    ibv_sge element{};
    while (!job.data_done()) {
      WorkChain chain(room, limits.max_sge);
      job.fill(chain, limits, result);
      REQUIRE(chain.size() > 0);
      for (const ibv_send_wr* r = &chain.front(); r != nullptr; r = r->next) {
        opcodes.push_back(r->opcode);
        last = *r;
        element = *r->sg_list;
      }
    }
    REQUIRE(opcodes.size() == 5);  // 100 + 100 + 50, 40, and the read
    CHECK(opcodes[3] == IBV_WR_RDMA_WRITE);
    CHECK(last.opcode == IBV_WR_RDMA_READ);
    CHECK(last.wr.rdma.remote_addr == 3039);
    CHECK(last.wr.rdma.rkey == 9);
    CHECK(element.addr == result.addr);
    CHECK(element.length == 1);
    CHECK(element.lkey == result.lkey);
  }
  Job nothing(nullptr, IBV_WR_RDMA_WRITE);
  nothing.add(piece(1000, 2000, 0));
  nothing.read_back();
  WorkChain chain(4, 1);
  nothing.fill(chain, limits, result);
  CHECK(chain.size() == 0);
  CHECK(nothing.data_done());
}

TEST_CASE("a job moves each byte of each piece once, whatever the limits and interruptions") {
  Generator generator(20261121);
  for (int round = 0; round < 400; ++round) {
    const JobLimits limits{.max_sge = static_cast<std::uint32_t>(pick(generator, 1, 6)),
                           .inline_bytes = static_cast<std::uint32_t>(pick(generator, 0, 32)),
                           .max_message = static_cast<std::uint32_t>(pick(generator, 1, 200))};
    Job job(nullptr, IBV_WR_RDMA_WRITE);
    std::vector<Piece> pieces;
    for (std::int64_t i = pick(generator, 0, 3); i > 0; --i) {
      const auto shape = random_shape(generator);
      Piece piece{.local = random_layout(generator, shape, DType::parse("int16")),
                  .remote = random_layout(generator, shape, DType::parse("int16")),
                  .lkey = 7,
                  .rkey = 9};
      piece.local.address += static_cast<std::uint64_t>(i) << 30;
      pieces.push_back(piece);
      job.add(piece);
    }
    const Posted posted = post_all(job, limits, generator);
    CHECK(posted.bytes == expected(pieces));
  }
}

TEST_CASE("rows that are contiguous remotely are gathered into one request") {
  const JobLimits limits{.max_sge = 4, .inline_bytes = 0, .max_message = 1u << 30};
  const DType byte{};
  Piece piece{.local = {1 << 20, byte, {8, 16}, {64, 1}},
              .remote = Layout::contiguous(1 << 24, byte, std::vector<std::int64_t>{8, 16}),
              .lkey = 7,
              .rkey = 9};
  Job job(nullptr, IBV_WR_RDMA_WRITE);
  job.add(piece);
  Generator generator(1);
  CHECK(post_all(job, limits, generator).requests == 2);  // 8 rows, 4 elements a request
}

TEST_CASE("small writes are inlined, reads never") {
  const JobLimits limits{.max_sge = 4, .inline_bytes = 64, .max_message = 1u << 30};
  const Layout eight = Layout::contiguous(1 << 20, DType{}, std::vector<std::int64_t>{8});
  Generator generator(1);
  for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Job job(nullptr, opcode);
    job.add({.local = eight, .remote = eight, .lkey = 7, .rkey = 9});
    CHECK(post_all(job, limits, generator).inlined == (opcode == IBV_WR_RDMA_WRITE ? 1 : 0));
  }
}

TEST_CASE("an atomic is one request with its operands and its result word") {
  Job job = Job::atomic(nullptr, IBV_WR_ATOMIC_CMP_AND_SWP, 4096, 9, 5, 6);
  CHECK_FALSE(job.data_done());
  WorkChain chain(4, 4);
  job.fill(chain, {}, {.addr = 64, .length = 8, .lkey = 7});
  CHECK(job.data_done());
  REQUIRE(chain.size() == 1);
  CHECK(chain.front().wr.atomic.remote_addr == 4096);
  CHECK(chain.front().wr.atomic.compare_add == 5);
  CHECK(chain.front().wr.atomic.swap == 6);
  CHECK(chain.front().sg_list->addr == 64);
}
