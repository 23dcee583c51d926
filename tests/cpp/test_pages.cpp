// Lists of pages: which ranges they are, where those lie in chunks of another process's memory, and
// transfers of them between processes of one host, in GPU and host memory.
#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "engine/memory/pages.hpp"
#include "engine/path/gpu/gpu_ranges.hpp"
#include "gpu/buffer.hpp"
#include "gpu/chunk_export.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

using engine::Pages;

using Indices = std::vector<std::int64_t>;

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

// The words: tests/contract/test_pages.py.
TEST_CASE("an index out of range is refused, however large") {
  const Arrays arrays(bytes_at(4096, {10, 16}), bytes_at(1 << 24, {20, 16}));
  const auto refusal = [&](const Arrays& of, const Indices& ours, const Indices& theirs,
                           bool is_write = true) {
    return message_of<std::exception>([&] { of.pages(ours, theirs).check(is_write); });
  };
  CHECK(refusal(arrays, {0, 9}, {19, 0}) == "nothing was thrown");
  CHECK(refusal(arrays, {0, 1}, {20, 0}, false) ==
        "source_pages[0] is 20, and the source has 20 pages: give 0 to 19");
  for (const std::int64_t index : {INT64_MIN, INT64_MAX, INT64_MIN + 10, std::int64_t{-1}}) {
    CHECK(contains(refusal(arrays, {2, index}, {2, 3}), "source_pages[1] is "));
  }
  CHECK(contains(refusal({bytes_at(4096, {0, 16}), arrays.remote.layout}, {0}, {0}),
                 "the source has no pages"));
}

// Chunks of another process's memory, adjacent there, but not here.
struct Chunks {
  static constexpr std::uint64_t kBegin = 0x7f0000000000;
  static constexpr std::uint64_t kNbytes = 2 << 20;
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
    engine::GpuRanges into({&anywhere, 1}, chunks.spots, is_write);
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

// --- transfers ---

constexpr std::int64_t kPages = 60;
constexpr std::int64_t kPageBytes = 1000;

// No two neighbours are adjacent in both lists.
Indices mixed(std::int64_t step) {
  Indices pages;
  for (std::int64_t k = 0; k < kPages; ++k) pages.push_back(k * step % kPages);
  return pages;
}

// The listed pages, in poisoned memory.
Bytes moved(const Bytes& from, const Indices& source, const Indices& target) {
  Bytes to(from.size(), std::byte{0xEE});
  for (std::size_t k = 0; k < source.size(); ++k) {
    std::copy_n(from.begin() + source[k] * kPageBytes, kPageBytes,
                to.begin() + target[k] * kPageBytes);
  }
  return to;
}

struct PageCouple : GpuCouple {
  const Indices ours = mixed(7);
  const Indices theirs = mixed(11);

  // Three adjacent allocations: pages span the chunks.
  Memory in_chunks(engine::Endpoint& endpoint) {
    constexpr std::uint64_t kChunk = kPages * kPageBytes / 3 + 4;
    Layout layout = Layout::contiguous(0, kByte, std::vector<std::int64_t>{kPages, kPageBytes});
    layout.address = cuda.copies.allocate(3 * kChunk, std::byte{0xEE});
    for (std::uint64_t i = 0; i < 3; ++i) {
      cuda.add(gpu::MemoryKind::plain, layout.address + i * kChunk, kChunk);
    }
    return endpoint.register_memory(layout, nullptr, {.writable = true, .device = "cuda:0"});
  }
  void write_pages(const Memory& from, const RemoteMemory& to,
                   const engine::TransferOptions& options = by("p2p")) {
    const auto written = to_right->write_pages({&from, &to, ours, theirs}, options);
    finish(written);
    CHECK(written->nbytes() == kPages * kPageBytes);
  }
};

TEST_CASE_FIXTURE(PageCouple, "pages are written and read by the GPU, across chunks") {
  const Memory local = array(left, {kPages, kPageBytes});
  const Memory far = in_chunks(right);
  const Bytes bytes = counted(kPages * kPageBytes, 3);
  put(local, bytes);
  write_pages(local, far.remote());
  CHECK(get(far) == moved(bytes, ours, theirs));
  const Bytes other = counted(kPages * kPageBytes, 50);
  put(far, other);
  const RemoteMemory remote = far.remote();
  const Indices some(ours.begin(), ours.begin() + 20);
  const Indices there(theirs.begin(), theirs.begin() + 20);
  put(local, Bytes(kPages * kPageBytes, std::byte{0xEE}));
  finish(to_right->read_pages({&local, &remote, some, there}, by("p2p")));
  CHECK(get(local) == moved(other, there, some));
  CHECK(to_right->rails().at(0)->stats().work_requests == 0);
}

TEST_CASE_FIXTURE(PageCouple, "lists of pairs cross chunks as well, whatever their order") {
  const Memory local = array(left, {kPages, kPageBytes});
  const Memory far = in_chunks(right);
  const Memory other = array(right, {1, kPageBytes});
  const Bytes bytes = counted(kPages * kPageBytes, 9);
  put(local, bytes);
  std::vector<Memory> from;
  std::vector<RemoteMemory> to;
  for (std::size_t k = 0; k < ours.size(); ++k) {
    const Index there = theirs[k];
    from.push_back(local.slice(std::vector<Index>{ours[k]}));
    to.push_back(k == 30 ? other.remote().slice(std::vector<Index>{std::int64_t{0}})
                         : far.remote().slice({&there, 1}));
  }
  std::vector<Peer::Pair> pairs;
  for (std::size_t k = 0; k < from.size(); ++k) pairs.emplace_back(&from[k], &to[k]);
  finish(to_right->write(pairs, by("p2p")));
  Bytes wanted = moved(bytes, ours, theirs);
  std::fill_n(wanted.begin() + theirs[30] * kPageBytes, kPageBytes, std::byte{0xEE});
  CHECK(get(far) == wanted);
  const auto begin = bytes.begin() + ours[30] * kPageBytes;
  CHECK(get(other) == Bytes(begin, begin + kPageBytes));
}

TEST_CASE_FIXTURE(PageCouple, "a notification follows the pages of whatever route") {
  const auto [local, far] = arrays({kPages, kPageBytes});
  const auto [host, far_host] = host_arrays({kPages, kPageBytes});
  for (unsigned value = 1; value <= 6; ++value) {
    const Bytes bytes = counted(kPages * kPageBytes, value);
    put(local, bytes);
    put(host, bytes);
    const engine::Notification notification{2, value};
    const engine::TransferOptions by_p2p = by("p2p", notification);
    write_pages(local, far.remote(), by_p2p);
    CHECK(right.wait_notify(2, 1, true, soon()).second == value);
    CHECK(get(far) == moved(bytes, ours, theirs));
    for (const char* require : {"p2p", "host"}) {
      write_pages(host, far_host.remote(), by(require, notification));
      CHECK(right.wait_notify(2, 1, true, soon()).second == value);
      CHECK(get(far_host) == moved(bytes, ours, theirs));
      put(far_host, Bytes(kPages * kPageBytes, std::byte{0xEE}));
    }
  }
}

TEST_CASE_FIXTURE(PageCouple, "what is not mapped goes page by page over the next route") {
  const Memory local = array(left, {kPages, kPageBytes});
  const Memory far = array(right, {kPages, kPageBytes}, true, gpu::MemoryKind::pool);
  const RemoteMemory remote = far.remote();
  const Bytes bytes = counted(kPages * kPageBytes, 8);
  put(local, bytes);
  CHECK(contains(message_of<RouteUnavailable>([&] { write_pages(local, remote); }),
                 "has no handle to share"));
  const auto written = to_right->write_pages({&local, &remote, ours, theirs}, {});
  finish(written);
  CHECK(written->route().kind == "staged");
  CHECK(get(far) == moved(bytes, ours, theirs));
}

TEST_CASE_FIXTURE(PageCouple, "rights and bounds are kept") {
  const Memory local = array(left, {kPages, kPageBytes});
  Memory fixed = array(right, {kPages, kPageBytes}, false);
  const RemoteMemory remote = fixed.remote();
  CHECK(contains(message_of<std::invalid_argument>([&] { write_pages(local, remote); }),
                 "read-only"));
  RemoteMemory forged = remote;
  forged.access |= engine::kRemoteWrite;
  CHECK(contains(message_of<RouteUnavailable>([&] { write_pages(local, forged); }), "read-only"));
  RemoteMemory wider = remote;
  wider.layout.shape[0] = 2 * kPages;
  const Indices beyond{kPages};
  const Indices first{0};
  CHECK(contains(message_of<RouteUnavailable>(
                     [&] { to_right->read_pages({&local, &wider, first, beyond}, by("p2p")); }),
                 "exceeds the range"));
  fixed.close();
  CHECK(contains(message_of<RouteUnavailable>(
                     [&] { to_right->read_pages({&local, &remote, ours, theirs}, by("p2p")); }),
                 "closed that memory"));
}

TEST_CASE_FIXTURE(PageCouple, "a list that waits for a GPU that hangs holds up no other call") {
  constexpr std::int64_t kMany = 40000;  // in more launches than are in progress at once
  const auto [local, far] = arrays({kMany, 8});
  const RemoteMemory remote = far.remote();
  Indices forth(kMany);
  std::iota(forth.begin(), forth.end(), 0);
  const Indices back(forth.rbegin(), forth.rend());
  void* stream = cuda.copies.program_stream();
  hang(true);
  auto listing = std::async(std::launch::async, [&] {
    return message_of<TransferTimeout>(
        [&] { to_right->write_pages({&local, &remote, forth, back}, by("p2p", {}, 3.0)); });
  });
  CHECK(eventually([this] { return cuda.copies.waiting() >= 4; }));
  for (const auto on : {std::optional<driver::CudaStream>(), std::optional(stream)}) {
    const engine::TransferOptions options{
        .notify = {}, .require = "p2p", .timeout = 0.02, .stream = on};
    CHECK(contains(message_of<TransferTimeout>([&] { write(*to_right, local, remote, options); }),
                   "the GPU did not make earlier copies in time, so nothing was transferred"));
  }
  CHECK(listing.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  CHECK(contains(listing.get(), "so not all of these were begun"));
  hang(false);
  finish(write(*to_right, local, remote, by("p2p")));
  CHECK(get(far) == get(local));
}

TEST_CASE_FIXTURE(PageCouple, "close() of memory waits for the pages that the peer's GPU copies") {
  auto [local, far] = arrays({kPages, kPageBytes});
  const RemoteMemory remote = far.remote();
  hang(true);
  const auto written = to_right->write_pages({&local, &remote, ours, theirs}, by("p2p"));
  std::atomic<bool> closed = false;
  auto closing = std::async(std::launch::async, [&] {
    far.close();
    closed = true;
  });
  while (!far.closed()) std::this_thread::yield();
  finish(to_left->notify({1, 1}));
  CHECK_FALSE(closed);
  hang(false);
  finish(written);
  closing.get();
}

}  // namespace
}  // namespace zerohop::testing
