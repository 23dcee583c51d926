// Lists of pages: which ranges they are, and where those lie in chunks of another process's memory.
#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "couple.hpp"
#include "engine/memory/pages.hpp"
#include "engine/path/gpu/gpu_ranges.hpp"
#include "fake_cuda.hpp"
#include "gpu/buffer.hpp"
#include "gpu/chunk_export.hpp"
#include "staged_couple.hpp"

namespace zerohop::testing {
namespace {

using engine::GpuRanges;
using engine::Pages;
using Indices = std::vector<std::int64_t>;

constexpr std::uint64_t kMiB = 1 << 20;

// Arrays that are never registered: only their layouts matter here.
struct Arrays {
  Memory local;
  RemoteMemory remote;

  Arrays(const Layout& ours, const Layout& theirs) : local({}, ours, nullptr, {}) {
    remote.layout = theirs;
  }
  Pages pages(const Indices& ours, const Indices& theirs) const {
    return {&local, &remote, ours, theirs};
  }
};

Layout bytes_at(std::uint64_t address, const std::vector<std::int64_t>& shape) {
  return Layout::contiguous(address, kByte, shape);
}

std::vector<Run> runs_of(const Pages& pages) {
  std::vector<Run> runs;
  engine::PageRuns all(pages);
  for (Run run{}; all.next(run);) runs.push_back(run);
  return runs;
}

using Bytewise = std::map<std::uint64_t, std::uint64_t>;  // from b to a

void add(Bytewise& bytes, const Run& run) {
  for (std::uint64_t i = 0; i < run.nbytes; ++i) {
    REQUIRE(bytes.emplace(run.b_address + i, run.a_address + i).second);
  }
}

Bytewise one_by_one(const Arrays& arrays, const Indices& ours, const Indices& theirs) {
  Bytewise bytes;
  for (std::size_t k = 0; k < ours.size(); ++k) {
    Runs runs(engine::page_layout(arrays.local.layout(), ours[k]),
              engine::page_layout(arrays.remote.layout, theirs[k]));
    for (Run run{}; runs.next(run);) add(bytes, run);
  }
  return bytes;
}

Indices shuffled(std::int64_t size, std::size_t count, std::mt19937& random) {
  Indices all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random);
  all.resize(count);
  return all;
}

TEST_CASE("the runs of a list are those of its pages") {
  std::mt19937 random(5);
  Layout strided{.address = 1 << 20, .dtype = kByte, .shape = {40, 3, 10}, .strides = {64, 20, 2}};
  Layout reversed = bytes_at(1 << 24, {30, 3, 10});
  reversed.address += 29 * 30;
  reversed.strides[0] = -30;
  const Arrays cases[] = {{bytes_at(4096, {40, 3, 10}), bytes_at(1 << 24, {50, 3, 10})},
                          {strided, bytes_at(1 << 24, {50, 3, 10})},
                          {bytes_at(4096, {40, 3, 10}), reversed},
                          {strided, reversed}};
  for (const Arrays& arrays : cases) {
    const Indices ours = shuffled(arrays.local.layout().shape[0], 25, random);
    const Indices theirs = shuffled(arrays.remote.layout.shape[0], 25, random);
    const Pages pages = arrays.pages(ours, theirs);
    pages.check(true);
    CHECK(pages.nbytes() == 25 * 30);
    Bytewise found;
    for (const Run& run : runs_of(pages)) add(found, run);
    CHECK(found == one_by_one(arrays, ours, theirs));
  }
}

TEST_CASE("pages that follow one another in both lists are one run, and one pair") {
  const Arrays arrays(bytes_at(4096, {100, 16}), bytes_at(1 << 24, {100, 16}));
  Indices all(100);
  std::iota(all.begin(), all.end(), 0);
  REQUIRE(runs_of(arrays.pages(all, all)).size() == 1);
  CHECK(runs_of(arrays.pages(all, all))[0].nbytes == 1600);
  const Indices ours{3, 4, 5, 9, 10, 20, 19};
  const Indices theirs{7, 8, 9, 10, 12, 40, 39};
  const Pages pages = arrays.pages(ours, theirs);
  const auto runs = runs_of(pages);
  std::vector<std::uint64_t> lengths;
  for (const Run& run : runs) lengths.push_back(run.nbytes / 16);
  CHECK(lengths == std::vector<std::uint64_t>{3, 1, 1, 1, 1});
  const engine::PagePairs pairs(pages);
  REQUIRE(pairs.pairs.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    const auto& [local, remote] = pairs.pairs[i];
    CHECK(local->layout().address == runs[i].a_address);
    CHECK(remote->layout.address == runs[i].b_address);
    CHECK(local->layout().shape == Dims{static_cast<std::int64_t>(lengths[i]), 16});
    CHECK(local->layout().shape == remote->layout.shape);
  }
}

TEST_CASE("what does not fit is refused by name and position") {
  const Arrays arrays(bytes_at(4096, {10, 16}), bytes_at(1 << 24, {20, 16}));
  const auto refusal = [&](const Arrays& of, const Indices& ours, const Indices& theirs,
                           bool is_write = true) {
    return message_of<std::exception>([&] { of.pages(ours, theirs).check(is_write); });
  };
  CHECK(refusal(arrays, {0, 9}, {19, 0}) == "nothing was thrown");
  CHECK(refusal(arrays, {0, 10}, {0, 1}) ==
        "source_pages[1] is 10, and the source has 10 pages: give 0 to 9");
  CHECK(refusal(arrays, {0, 1}, {0, -1}) ==
        "destination_pages[1] is -1, and the destination has 20 pages: give 0 to 19");
  CHECK(refusal(arrays, {0, 1}, {20, 0}, false) ==
        "source_pages[0] is 20, and the source has 20 pages: give 0 to 19");
  for (const std::int64_t index : {INT64_MIN, INT64_MAX, INT64_MIN + 10}) {
    CHECK(contains(refusal(arrays, {2, index}, {2, 3}), "source_pages[1] is "));
  }
  CHECK(contains(refusal({bytes_at(4096, {0, 16}), arrays.remote.layout}, {0}, {0}),
                 "the source has no pages"));
  CHECK(contains(refusal(arrays, {0, 1}, {0}), "2 source_pages and 1 destination_pages"));
  CHECK(contains(refusal(arrays, {0}, {0, 1}, false), "1 destination_pages and 2 source_pages"));
  CHECK(contains(refusal({bytes_at(4096, {10, 4, 4}), arrays.remote.layout}, {0}, {0}),
                 "of the source are (4, 4) of uint8 and those of the destination (16,) of uint8"));
  Layout floats = arrays.local.layout();
  floats.dtype = DType::parse("float16");
  CHECK(contains(refusal({floats, arrays.remote.layout}, {0}, {0}, false),
                 "of the source are (16,) of uint8 and those of the destination (16,) of float16"));
  CHECK(contains(refusal({bytes_at(4096, {}), arrays.remote.layout}, {}, {}),
                 "the source has no first axis"));
  CHECK(contains(refusal({arrays.local.layout(), bytes_at(4096, {})}, {}, {}),
                 "the destination has no first axis"));
}

// Chunks of another process's memory, adjacent there, but not here.
struct Chunks {
  static constexpr std::uint64_t kBegin = 0x7f0000000000;
  static constexpr std::uint64_t kNbytes = 2 * kMiB;
  static constexpr std::uint64_t kCut = 1024;  // an exposure begins and ends within chunks
  FakeCuda cuda;
  AllGivenBack given_back{cuda};
  std::shared_ptr<gpu::Device> device = gpu::Device::open(cuda.table(), 0);
  std::vector<std::shared_ptr<gpu::Buffer>> owners;
  std::vector<std::shared_ptr<const gpu::PeerMemory>> memories;
  std::vector<engine::GpuSpot> spots;

  explicit Chunks(int count) {
    for (int i = 0; i < count; ++i) {
      owners.push_back(gpu::Buffer::create(device, kNbytes, soon()));
      const std::uint64_t address = owners.back()->address();
      auto chunk = gpu::export_chunk(*device, address);
      const std::uint64_t begin = kBegin + static_cast<std::uint64_t>(i) * kNbytes;
      chunk.extent = {begin, begin + kNbytes};
      const auto& memory = memories.emplace_back(gpu::PeerMemory::map(device, {&chunk, 1}));
      const std::uint64_t first = i == 0 ? begin + kCut : begin;
      const std::uint64_t last = i == count - 1 ? begin + kNbytes - kCut : begin + kNbytes;
      spots.push_back({first, last, memory->at(begin) - begin});
    }
  }
  std::uint64_t here(std::uint64_t there) const {
    return memories[(there - kBegin) / kNbytes]->at(there);
  }
};

TEST_CASE("ranges are split where chunks end, and found in the mapping of each") {
  Chunks chunks(3);
  REQUIRE(chunks.here(Chunks::kBegin) != Chunks::kBegin);
  constexpr std::int64_t kPage = 1 << 16;  // one lies across each border
  const Arrays arrays(bytes_at(1 << 20, {80, kPage}),
                      bytes_at(Chunks::kBegin + Chunks::kCut, {80, kPage}));
  std::mt19937 random(2);
  for (const bool is_write : {true, false}) {
    const Indices ours = shuffled(80, 80, random);
    const Indices theirs = shuffled(80, 80, random);
    std::vector<gpu::CopyPiece> ranges;
    const engine::GpuSpot anywhere;
    GpuRanges into({&anywhere, 1}, chunks.spots, is_write);
    engine::PageRuns runs(arrays.pages(ours, theirs));
    for (Run run{}; runs.next(run);) {
      while (run.nbytes > 0) ranges.push_back(into.cut(run, run.nbytes));
    }
    std::map<std::uint64_t, std::uint64_t> found;  // from a mapped address to a local one: starts
    std::uint64_t nbytes = 0;
    for (const gpu::CopyPiece& range : ranges) {
      const std::uint64_t ours_at = is_write ? range.from : range.to;
      const std::uint64_t theirs_at = is_write ? range.to : range.from;
      for (std::uint64_t i = 0; i < range.nbytes; i += Chunks::kCut)
        found[theirs_at + i] = ours_at + i;
      nbytes += range.nbytes;
    }
    CHECK(nbytes == 80 * kPage);
    CHECK(ranges.size() > 80);
    std::map<std::uint64_t, std::uint64_t> wanted;
    for (std::size_t k = 0; k < 80; ++k) {
      for (std::int64_t i = 0; i < kPage; i += Chunks::kCut) {
        const auto a = static_cast<std::uint64_t>(ours[k] * kPage + i) + (1 << 20);
        const auto b =
            static_cast<std::uint64_t>(theirs[k] * kPage + i) + Chunks::kBegin + Chunks::kCut;
        wanted[chunks.here(b)] = a;
      }
    }
    CHECK(found == wanted);
  }
}

}  // namespace
}  // namespace zerohop::testing
