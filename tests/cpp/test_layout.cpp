// Layouts of arrays, the contiguous runs of two, and the work requests of a job. What NumPy is the
// model for: tests/contract/test_values.py, test_shapes.py.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "base/layout.hpp"
#include "base/runs.hpp"
#include "engine/path/verbs/job.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;
using Generator = std::mt19937;

const DType kFloat32 = DType::parse("float32");
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

TEST_CASE("a layout that cannot exist is refused") {
  const auto refused = [](Layout layout, const char* words) {
    CHECK_THROWS_WITH_AS(layout.validate(), doctest::Contains(words), std::invalid_argument);
  };
  refused({0, kFloat32, {2}, {}}, "differ in length");
  refused({0, kFloat32, {-1}, {4}}, "negative dimension");
  refused({0, DType{17, 4, 2}, {1}, {1}}, "not supported");
  refused({0, kFloat32, {kHuge, 2}, {4, 4}}, "larger than the address space");
  refused({0, kFloat32, {0, kHuge, kHuge}, {4, 4, 4}}, "larger than the address space");
  refused({8, kFloat32, {4}, {-4}}, "leaves the address space");
  refused({~std::uint64_t{0} - 8, kFloat32, {4}, {4}}, "leaves the address space");
  refused({8, kFloat32, {2, 2}, {kHuge, kHuge}}, "leaves the address space");
}

TEST_CASE("dimension lists copy and move beyond their inline room and stop at the limit") {
  Dims dims;
  for (std::int64_t i = 0; i < 12; ++i) dims.push_back(i);
  Dims copy = dims;
  copy[11] = 99;
  CHECK(dims[11] == 11);
  Dims moved = std::move(copy);
  CHECK(moved.size() == 12);
  CHECK(moved[11] == 99);
  moved = Dims{1, 2};
  CHECK(moved == Dims{1, 2});
  moved = dims;
  CHECK(moved == dims);
  CHECK_THROWS_WITH_AS(Dims::zeros(33), doctest::Contains("33 dimensions"), std::invalid_argument);
}

TEST_CASE("extreme steps and bounds of an index do not overflow") {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  const Layout layout =
      Layout::contiguous(1024, DType::parse("int16"), std::vector<std::int64_t>{4});
  const auto select = [&](Slice slice) { return apply_index(layout, std::vector<Index>{slice}); };
  CHECK(select({0, kHuge, kHuge}).shape == Dims{1});
  CHECK(select({kHuge, kLeast, kLeast}).shape == Dims{1});
  CHECK(select({kHuge, kLeast, kLeast}).address == 1030);
  CHECK(select({kLeast, kLeast, 1}).count() == 0);
}

// --- random layouts, and the brute-force meaning of one ---

std::int64_t pick(Generator& generator, std::int64_t lowest, std::int64_t highest) {
  return std::uniform_int_distribution<std::int64_t>(lowest, highest)(generator);
}

// The address of every element, in C order of the indices.
std::vector<std::uint64_t> element_addresses(const Layout& layout) {
  std::vector<std::uint64_t> addresses{layout.address};
  for (std::size_t axis = 0; axis < layout.ndim(); ++axis) {
    std::vector<std::uint64_t> longer;
    for (std::uint64_t address : addresses) {
      for (std::int64_t i = 0; i < layout.shape[axis]; ++i) {
        longer.push_back(address + static_cast<std::uint64_t>(i * layout.strides[axis]));
      }
    }
    addresses = std::move(longer);
  }
  return addresses;
}

std::vector<std::int64_t> random_shape(Generator& generator) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(pick(generator, 0, 5)));
  for (std::int64_t& size : shape) size = pick(generator, 0, 9) == 0 ? 0 : pick(generator, 1, 4);
  return shape;
}

// Elements that do not overlap: dimensions in random memory order, some with gaps, some reversed.
Layout random_layout(Generator& generator, const std::vector<std::int64_t>& shape, DType dtype) {
  Layout layout{std::uint64_t{1} << 40, dtype, Dims(shape), Dims::zeros(shape.size())};
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  if (pick(generator, 0, 1) == 0) std::shuffle(order.begin(), order.end(), generator);
  std::int64_t stride = dtype.itemsize();
  for (std::size_t i = order.size(); i-- > 0;) {
    const std::size_t axis = order[i];
    if (pick(generator, 0, 3) == 0) stride *= pick(generator, 2, 3);
    layout.strides[axis] = pick(generator, 0, 4) == 0 ? -stride : stride;
    stride *= std::max<std::int64_t>(shape[axis], 1);
  }
  return layout;
}

// --- runs ---

const DType kFloat64 = DType::parse("float64");

std::vector<Run> all_runs(const Layout& a, const Layout& b) {
  Runs runs(a, b);
  std::vector<Run> list;
  for (Run run; runs.next(run);) list.push_back(run);
  REQUIRE(list.size() == runs.count());
  for (const Run& run : list) REQUIRE(run.nbytes == runs.run_nbytes());
  return list;
}

// The pieces left after joining every pair of neighbours on both sides.
std::size_t longest_pieces(const std::map<std::uint64_t, std::uint64_t>& partners) {
  std::size_t pieces = 0;
  auto before = partners.end();
  for (auto at = partners.begin(); at != partners.end(); before = at++) {
    const bool joined = before != partners.end() && at->first == before->first + 8 &&
                        at->second == before->second + 8;
    if (!joined) ++pieces;
  }
  return pieces;
}

Layout shaped(std::vector<std::int64_t> shape) {
  return Layout::contiguous(1 << 20, kFloat64, shape);
}

TEST_CASE("runs carry each element to its partner, and no other byte") {
  Generator generator(3);
  for (int round = 0; round < 5000; ++round) {
    const auto shape = random_shape(generator);
    const Layout a = random_layout(generator, shape, kFloat64);
    const bool alike = pick(generator, 0, 1) == 0;
    Layout b = alike ? a : random_layout(generator, shape, kFloat64);
    b.address += 1 << 30;
    std::map<std::uint64_t, std::uint64_t> expected;
    const auto from = element_addresses(a), to = element_addresses(b);
    for (std::size_t i = 0; i < from.size(); ++i) expected[from[i]] = to[i];

    std::map<std::uint64_t, std::uint64_t> carried;
    for (const Run& run : all_runs(a, b)) {
      REQUIRE(run.nbytes % 8 == 0);
      for (std::uint64_t at = 0; at < run.nbytes; at += 8) {
        REQUIRE(carried.emplace(run.a_address + at, run.b_address + at).second);
      }
    }
    REQUIRE(carried == expected);
    // Different layouts may also touch by chance, across dimensions; the code does not look for
    // that.
    if (alike) REQUIRE(Runs(a, b).count() == longest_pieces(expected));
  }
}

TEST_CASE("the side with the shorter contiguous part decides the length of the runs") {
  Layout strided = shaped({4, 6});
  strided.strides = {100 * 8, 8};
  const auto runs = all_runs(shaped({4, 6}), strided);
  CHECK(runs.size() == 4);
  CHECK(runs[1].nbytes == 48);
  Layout columns = shaped({4, 6});
  columns.strides = {100 * 8, 16};
  CHECK(all_runs(columns, strided).size() == 24);
}

TEST_CASE("a copy between different shapes or item sizes is refused") {
  CHECK_THROWS_WITH_AS(Runs(shaped({2}), shaped({3})),
                       doctest::Contains("(2,) of float64 and (3,)"), std::invalid_argument);
  Layout narrow = shaped({2});
  narrow.dtype = DType::parse("float32");
  CHECK_THROWS_AS(Runs(shaped({2}), narrow), std::invalid_argument);
}

// --- jobs ---

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

TEST_CASE("writes that are read back end with a read of their last byte") {
  const ibv_sge result{.addr = 4096, .length = 8, .lkey = 5};
  const JobLimits limits{.max_sge = 1, .inline_bytes = 0, .max_message = 100};
  const auto piece = [](std::uint64_t local, std::uint64_t remote, std::uint64_t nbytes) {
    return Piece{.local = Layout::bytes(local, nbytes),
                 .remote = Layout::bytes(remote, nbytes),
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

TEST_CASE("on iWARP short reads end with the page, and nothing else is split there") {
  const auto requests = [](ibv_wr_opcode opcode, std::uint64_t remote, std::uint64_t nbytes,
                           bool confirms) {
    const JobLimits limits{.max_message = 1u << 30, .confirms = confirms};
    const Piece piece{.local = Layout::bytes(1 << 20, nbytes),
                      .remote = Layout::bytes(remote, nbytes),
                      .lkey = 7,
                      .rkey = 9};
    Job job(nullptr, opcode);
    job.add(piece);
    Generator generator(1);
    const Posted posted = post_all(job, limits, generator);
    CHECK(posted.bytes == expected({piece}));
    return posted.requests;
  };
  CHECK(requests(IBV_WR_RDMA_READ, 8188, 12, true) == 2);
  CHECK(requests(IBV_WR_RDMA_READ, 8191, 32, true) == 2);
  CHECK(requests(IBV_WR_RDMA_READ, 8191, 33, true) == 1);
  CHECK(requests(IBV_WR_RDMA_READ, 8180, 12, true) == 1);
  CHECK(requests(IBV_WR_RDMA_READ, 8192, 12, true) == 1);
  CHECK(requests(IBV_WR_RDMA_READ, 8188, 12, false) == 1);
  CHECK(requests(IBV_WR_RDMA_WRITE, 8188, 12, true) == 1);
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

}  // namespace
}  // namespace zerohop::testing
