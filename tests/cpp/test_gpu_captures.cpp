// What captured calls keep, and when they let go of it, whatever fails meanwhile.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>

#include "engine/path/gpu/gpu_captures.hpp"
#include "gpu/apart.hpp"
#include "gpu/capture.hpp"
#include "gpu/device_guard.hpp"
#include "gpu_couple.hpp"
#include "no_threads.hpp"

namespace {

thread_local int allocations = 0;  // until one fails; 0: none does

}  // namespace

// Not inlined: the compiler would take them for a mixture of two allocators.
[[gnu::noinline]] void* operator new(std::size_t nbytes) {
  void* const memory = allocations > 0 && --allocations == 0 ? nullptr : std::malloc(nbytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t nbytes, const std::nothrow_t&) noexcept {
  return std::malloc(nbytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace zerohop::testing {
namespace {

using Graph = std::shared_ptr<FakeCopies::Graph>;

struct OneGpu {
  FakeCuda cuda;
  AllGivenBack given_back{cuda};
  std::shared_ptr<const gpu::Device> device = gpu::Device::open(cuda.table(), 0);
  void* stream = cuda.copies.program_stream();
};

// A captured copy, alone.
struct CapturedCopy : OneGpu {
  const std::uint64_t from = cuda.copies.allocate(16);
  const std::uint64_t to = cuda.copies.allocate(16);
  engine::GpuCaptures captures{"far"};
  std::weak_ptr<int> held;
  Graph graph = capture();
  unsigned rounds = 0;

  Graph capture() {
    gpu::run_apart(0, [] {});  // has a thread from now on
    const gpu::CopyPiece piece{from, to, 16};
    const auto used = std::make_shared<int>();
    held = used;
    engine::GpuCopies::Kept kept;
    kept.others.push_back(used);
    cuda.copies.begin_capture(stream);
    captures.add({.device = device,
                  .stream = stream,
                  .ranges = {&piece, 1},
                  .kept = std::move(kept),
                  .notify = {},
                  .session = nullptr},
                 {}, soon());
    return cuda.copies.end_capture(stream);
  }
  bool replay_moves() {
    const Bytes bytes = counted(16, ++rounds);
    cuda.copies.write(from, bytes);
    cuda.copies.launch(*graph, stream);
    REQUIRE(cuda.copies.run(stream));
    return cuda.copies.read(to, 16) == bytes;
  }
  bool lets_go() const {
    return eventually([this] { return held.expired(); });
  }
};

std::atomic<int> times_out_of_memory{0};
void note(std::string_view text) noexcept {
  if (text.starts_with("out of memory")) ++times_out_of_memory;
}

TEST_CASE("without memory to leave out a call, it keeps what it uses until there is some") {
  const ReportSink former = set_report_sink(&note);  // Reports would allocate
  times_out_of_memory = 0;
  bool failed = true;
  for (int n = 1; failed; ++n) {
    CAPTURE(n);
    CapturedCopy one;
    const int before = times_out_of_memory;
    allocations = n;
    one.captures.end();
    failed = std::exchange(allocations, 0) == 0;
    if (times_out_of_memory > before) {
      CHECK_FALSE(one.held.expired());
      CHECK(one.replay_moves());
      one.captures.end();
    }
    CHECK(one.lets_go());
    CHECK_FALSE(one.replay_moves());
  }
  CHECK(times_out_of_memory > 3);
  set_report_sink(former);
}

TEST_CASE("a gate that cannot be closed is reported, and its call keeps what it uses") {
  const Reports reported;
  std::string failed;
  for (int n = 1; failed != "memory_set"; ++n) {
    REQUIRE(n < 10);
    CapturedCopy one;
    Reports::clear();
    one.cuda.fail_at = one.cuda.calls + n;
    one.captures.end();
    REQUIRE(eventually([] { return Reports::count("memory of peer 'far' stays mapped") > 0; }));
    CHECK(Reports::count("drop the graphs that contain calls with it") == 1);
    failed = one.cuda.failed;
    CHECK_FALSE(one.held.expired());
    one.graph.reset();
    CHECK(one.lets_go());
  }
}

TEST_CASE_FIXTURE(OneGpu, "the driver's thread destroys nothing, even if no other can be started") {
  auto kept = std::make_shared<int>();
  const std::weak_ptr<int> held = kept;
  cuda.copies.begin_capture(stream);
  {
    const gpu::DeviceGuard guard(*device);
    gpu::keep_with_graph(device, stream, std::move(kept));
  }
  Graph graph = cuda.copies.end_capture(stream);
  const NoThreads none;
  graph.reset();
  CHECK_FALSE(held.expired());
}

TEST_CASE_FIXTURE(GpuCouple, "graphs captured one after the other notify as the same writer") {
  const Memory ours = array(left, {16});
  const Memory theirs = array(right, {16});
  const RemoteMemory remote = theirs.remote();
  const auto next_writer = [&] {
    return to_right->kernels()
        .mapped({.local = &ours, .remote = &remote}, engine::Hearers::both, kTimeout)
        .notes.writer;
  };
  void* const stream = cuda.copies.program_stream();
  const std::uint32_t before = next_writer();
  for (int round = 0; round < 5; ++round) {
    const auto released = std::make_shared<std::atomic<bool>>(false);
    Graph graph;
    {
      const std::shared_ptr<void> owner(nullptr, [released](void*) { *released = true; });
      const Memory mine = array(left, {16}, true, gpu::MemoryKind::plain, owner);
      cuda.copies.begin_capture(stream);
      write(*to_right, mine, remote, by("p2p", Notification{1, 1}, {}, stream));
      graph = cuda.copies.end_capture(stream);
    }
    graph.reset();
    REQUIRE(eventually([&] { return released->load(); }));
  }
  CHECK(next_writer() == before + 2);
}

TEST_CASE("notifications that came before a wait was captured in vain are still counted") {
  const Reports reported;
  int checked = 0;
  for (int n = 1; checked < 2; ++n) {
    REQUIRE(n < 100);
    CAPTURE(n);
    GpuCouple both;
    FakeCopies& gpu = both.cuda.copies;
    const auto [ours, theirs] = both.arrays({16});
    void* const stream = gpu.program_stream();
    gpu.begin_capture(stream);
    write(*both.to_right, ours, theirs.remote(), by("p2p", Notification{1, 1}, {}, stream));
    const Graph writes = gpu.end_capture(stream);
    for (int time = 0; time < 3; ++time) gpu.launch(*writes, stream);
    REQUIRE(gpu.run(stream));
    const auto wait = [&] {
      gpu.begin_capture(stream);
      try {
        (void)both.right.wait_notify_on(stream, 1, true, {});
      } catch (const Error&) {
        (void)gpu.end_capture(stream);
        throw;
      }
      return gpu.end_capture(stream);
    };
    both.cuda.fail_at = both.cuda.calls + n;
    CHECK_THROWS_AS((void)wait(), Error);
    if (both.cuda.failed != "memory_set") continue;  // of the words, and of the slot's count
    ++checked;
    const Graph waits = wait();
    for (int time = 0; time < 3; ++time) gpu.launch(*waits, stream);
    CHECK(gpu.run(stream));
  }
}

}  // namespace
}  // namespace zerohop::testing
