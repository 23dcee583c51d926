// Lists of pages between processes of one host, in GPU and host memory.
#include <algorithm>
#include <atomic>
#include <future>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

using engine::Pages;
using Indices = std::vector<std::int64_t>;

constexpr std::int64_t kPages = 60;
constexpr std::int64_t kPageBytes = 1000;

Indices all_pages() {
  Indices all(kPages);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

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

const engine::TransferOptions kByP2p{.notify = {}, .require = "p2p", .timeout = {}};

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
                   const engine::TransferOptions& options = kByP2p) {
    const Pages pages{&from, &to, ours, theirs};
    const auto written = to_right->write_pages(pages, options);
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
  finish(to_right->read_pages({&local, &remote, some, there}, kByP2p));
  CHECK(get(local) == moved(other, there, some));
  CHECK(to_right->rails().path(0)->stats().work_requests == 0);
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
    const Index here = ours[k];
    const Index there = theirs[k];
    from.push_back(local.slice({&here, 1}));
    to.push_back(k == 30 ? other.remote().slice(std::vector<Index>{std::int64_t{0}})
                         : far.remote().slice({&there, 1}));
  }
  std::vector<Peer::Pair> pairs;
  for (std::size_t k = 0; k < from.size(); ++k) pairs.emplace_back(&from[k], &to[k]);
  finish(to_right->write(pairs, kByP2p));
  Bytes wanted = moved(bytes, ours, theirs);
  std::fill_n(wanted.begin() + theirs[30] * kPageBytes, kPageBytes, std::byte{0xEE});
  CHECK(get(far) == wanted);
  const auto begin = bytes.begin() + ours[30] * kPageBytes;
  CHECK(get(other) == Bytes(begin, begin + kPageBytes));
}

TEST_CASE_FIXTURE(PageCouple, "a notification follows the pages of whatever route") {
  const Memory local = array(left, {kPages, kPageBytes});
  const Memory far = array(right, {kPages, kPageBytes});
  const Memory host = left.empty(std::vector<std::int64_t>{kPages, kPageBytes}, kByte);
  const Memory far_host = right.empty(std::vector<std::int64_t>{kPages, kPageBytes}, kByte);
  const auto content = [](const Memory& of) {
    const auto* data = reinterpret_cast<const std::byte*>(of.layout().address);
    return Bytes(data, data + of.layout().nbytes());
  };
  for (unsigned value = 1; value <= 6; ++value) {
    const Bytes bytes = counted(kPages * kPageBytes, value);
    put(local, bytes);
    std::ranges::copy(bytes, reinterpret_cast<std::byte*>(host.layout().address));
    const engine::Notification notification{2, value};
    const engine::TransferOptions by_p2p{.notify = notification, .require = "p2p", .timeout = {}};
    write_pages(local, far.remote(), by_p2p);
    CHECK(right.wait_notify(2, 1, true, soon()).second == value);
    CHECK(get(far) == moved(bytes, ours, theirs));
    for (const char* require : {"p2p", "host"}) {
      write_pages(host, far_host.remote(),
                  {.notify = notification, .require = require, .timeout = {}});
      CHECK(right.wait_notify(2, 1, true, soon()).second == value);
      CHECK(content(far_host) == moved(bytes, ours, theirs));
      std::fill_n(reinterpret_cast<std::byte*>(far_host.layout().address), kPages * kPageBytes,
                  std::byte{0xEE});
    }
  }
}

TEST_CASE_FIXTURE(PageCouple, "no pages are a notification alone") {
  const Memory local = array(left, {kPages, kPageBytes});
  const Memory far = array(right, {kPages, kPageBytes});
  const RemoteMemory remote = far.remote();
  const auto none =
      to_right->write_pages({&local, &remote, {}, {}},
                            {.notify = engine::Notification{1, 5}, .require = {}, .timeout = {}});
  finish(none);
  CHECK(none->nbytes() == 0);
  CHECK(right.wait_notify(1, 1, true, soon()).second == 5);
}

TEST_CASE_FIXTURE(PageCouple, "all pages in order are moved, and then some of them") {
  const Memory local = array(left, {kPages, kPageBytes});
  const Memory far = array(right, {kPages, kPageBytes});
  const RemoteMemory remote = far.remote();
  const Bytes bytes = counted(kPages * kPageBytes, 4);
  put(local, bytes);
  const Indices all = all_pages();
  finish(to_right->write_pages({&local, &remote, all, all}, kByP2p));
  CHECK(get(far) == bytes);
  finish(to_right->write_pages({&local, &remote, ours, theirs}, kByP2p));
  CHECK(get(far) == moved(bytes, ours, theirs));
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
                     [&] { to_right->read_pages({&local, &wider, first, beyond}, kByP2p); }),
                 "exceeds the range"));
  fixed.close();
  CHECK(contains(message_of<RouteUnavailable>(
                     [&] { to_right->read_pages({&local, &remote, ours, theirs}, kByP2p); }),
                 "closed that memory"));
}

TEST_CASE_FIXTURE(PageCouple, "a list that waits for a GPU that hangs holds up no other call") {
  constexpr std::int64_t kMany = 40000;  // in more launches than are in progress at once
  const Memory local = array(left, {kMany, 8});
  const Memory far = array(right, {kMany, 8});
  const RemoteMemory remote = far.remote();
  Indices forth(kMany);
  std::iota(forth.begin(), forth.end(), 0);
  const Indices back(forth.rbegin(), forth.rend());
  void* stream = cuda.copies.program_stream();
  hang(true);
  auto listing = std::async(std::launch::async, [&] {
    return message_of<TransferTimeout>([&] {
      to_right->write_pages({&local, &remote, forth, back},
                            {.notify = {}, .require = "p2p", .timeout = 3.0});
    });
  });
  for (const Deadline bound = soon(); cuda.copies.waiting() < 4 && !bound.passed();) {
    std::this_thread::yield();
  }
  const Peer::Pair pair{&local, &remote};
  for (const auto on : {std::optional<driver::CudaStream>(), std::optional(stream)}) {
    const engine::TransferOptions options{
        .notify = {}, .require = "p2p", .timeout = 0.02, .stream = on};
    CHECK(contains(message_of<TransferTimeout>([&] { to_right->write({&pair, 1}, options); }),
                   "the GPU did not make earlier copies in time, so nothing was transferred"));
  }
  CHECK(listing.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  CHECK(contains(listing.get(), "so not all of these were begun"));
  hang(false);
  finish(to_right->write({&pair, 1}, kByP2p));
  CHECK(get(far) == get(local));
}

TEST_CASE_FIXTURE(PageCouple, "close() of memory waits for the pages that the peer's GPU copies") {
  const Memory local = array(left, {kPages, kPageBytes});
  Memory far = array(right, {kPages, kPageBytes});
  const RemoteMemory remote = far.remote();
  hang(true);
  const auto written = to_right->write_pages({&local, &remote, ours, theirs}, kByP2p);
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
