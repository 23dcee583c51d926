// GPU memory of two processes of one host, and host memory in one of them: the GPU copies, and
// memory in use is never freed. On fake CUDA, where copies run only when they are queried.
#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

struct Way {
  bool from_host, to_host;
};
constexpr Way kWays[] = {{false, false}, {true, false}, {false, true}};

// Arrays of the left and the right endpoint.
struct Arrays {
  Arrays(HostGpuCouple& both, Way way, const std::vector<std::int64_t>& shape)
      : ours(way.from_host ? HostGpuCouple::plain(both.left, shape) : both.array(both.left, shape)),
        theirs(way.to_host ? HostGpuCouple::mapped(both.right, shape)
                           : both.array(both.right, shape)) {}
  Memory ours, theirs;
};

TEST_CASE("writes and reads place every byte, by p2p") {
  for (const Way way : kWays) {
    HostGpuCouple both;
    const auto [ours, theirs] = Arrays(both, way, {100000});
    const Bytes bytes = counted(100000, 1);
    both.put(ours, bytes);
    both.hang(true);
    const auto written = write(*both.to_right, ours, theirs.remote(), Notification{1, 1});
    CHECK_FALSE(written->done());
    CHECK(both.get(theirs) == Bytes(100000, std::byte{0xEE}));
    CHECK(both.is_locked(ours) == way.from_host);
    both.hang(false);
    CHECK(both.right.wait_notify(1, 1, true, soon()).second == 1);
    CHECK(both.get(theirs) == bytes);
    finish(written);
    CHECK(written->route().kind == "p2p");
    CHECK(written->route().device == "cuda:0");
    CHECK(both.why_not(ours, theirs) == written->route().reason);
    const Bytes other = counted(100000, 77);
    both.put(theirs, other);
    finish(read(*both.to_right, ours, theirs.remote()));
    CHECK(both.get(ours) == other);
    CHECK(both.by_device() == 0);
  }
}

TEST_CASE_FIXTURE(HostGpuCouple, "the route says how a GPU reaches the memory of the host") {
  const auto reason = [&](Way way) {
    const auto [ours, theirs] = Arrays(*this, way, {1000});
    return to_right->route(ours, theirs.remote()).reason;
  };
  CHECK(reason({.from_host = true, .to_host = false}) ==
        "both processes are on this host, and cuda:0 copies between page-locked memory of the "
        "host, over its link to the CPU (PCIe on most machines), and the peer's cuda:0, which is "
        "the same GPU");
  CHECK(contains(reason({.from_host = false, .to_host = true}),
                 "cuda:0 copies between its memory and the peer's in pages of the host that this "
                 "process has mapped and page-locked"));
}

TEST_CASE_FIXTURE(HostGpuCouple, "a notification is seen behind the data, whoever writes it") {
  const Memory host = plain(left, {50000});
  const auto [gpu, far_gpu] = arrays({50000});
  const Memory far_host = mapped(right, {50000});
  const Memory beside = array(right, {50000});
  for (std::uint32_t value = 1; value <= 25; ++value) {
    const Bytes bytes = counted(50000, value);
    put(host, bytes);
    put(gpu, bytes);
    std::vector<TransferPtr> all{write(*to_right, gpu, beside.remote()),
                                 write(*to_right, host, far_gpu.remote()),
                                 write(*to_right, gpu, far_host.remote())};
    const Notification last{3, value};
    switch (value % 5) {
      case 0: all.push_back(to_right->notify(last)); break;
      case 1: all.push_back(write(*to_right, gpu, far_gpu.remote(), last)); break;
      case 2: all.push_back(write(*to_right, host, far_gpu.remote(), last)); break;
      case 3: all.push_back(write(*to_right, host, far_host.remote(), last)); break;
      default: all.push_back(write(*to_right, host, far_host.remote(), by("host", last)));
    }
    CHECK(right.wait_notify(3, 1, true, soon()).second == value);
    for (const Memory* each : {&beside, &far_gpu, &far_host}) CHECK(get(*each) == bytes);
    for (const auto& one : all) finish(one);
  }
}

TEST_CASE_FIXTURE(GpuCouple, "columns and lists of arrays go in one launch") {
  const auto [ours, theirs] = arrays({64, 100});
  put(ours, counted(6400, 5));
  const auto columns = [](std::int64_t first) {
    return std::vector<Index>{Slice{}, Slice{first, first + 7}};
  };
  const Memory from = ours.slice(columns(10));
  finish(write(*to_right, from, theirs.slice(columns(80)).remote()));
  Bytes wanted(6400, std::byte{0xEE});
  const Bytes sent = get(ours);
  for (std::size_t row = 0; row < 64; ++row) {
    std::copy_n(sent.begin() + static_cast<std::ptrdiff_t>(row * 100 + 10), 7,
                wanted.begin() + static_cast<std::ptrdiff_t>(row * 100 + 80));
  }
  CHECK(get(theirs) == wanted);
}

TEST_CASE_FIXTURE(GpuCouple, "nobody has to wait for a notification to be put") {
  const auto [ours, theirs] = arrays({50000});
  write(*to_right, ours, theirs.remote(), Notification{1, 9});
  CHECK(right.wait_notify(1, 1, true, soon()).second == 9);
}

TEST_CASE_FIXTURE(GpuCouple, "what the program gave its default stream comes first") {
  const auto [ours, theirs] = arrays({1000});
  const Bytes bytes = counted(1000, 31);
  cuda.copies.launch(
      [&, address = ours.layout().address] { cuda.copies.overwrite(address, bytes); });
  cuda.copies.program_hangs = true;
  const auto written = write(*to_right, ours, theirs.remote());
  CHECK_FALSE(written->wait(within(0.05)));
  CHECK(get(theirs) == Bytes(1000, std::byte{0xEE}));
  cuda.copies.program_hangs = false;
  finish(written);
  CHECK(get(theirs) == bytes);
}

TEST_CASE_FIXTURE(GpuCouple,
                  "memory that has no handle takes the next route, and the route says why") {
  const Memory ours = array(left, {1000});
  const Memory theirs = array(right, {1000}, true, gpu::MemoryKind::pool);
  const RemoteMemory remote = theirs.remote();
  const engine::Route route = to_right->route(ours, remote);
  CHECK(route.kind == "staged");
  CHECK(contains(route.reason, "not by p2p, because another process cannot map this memory"));
  CHECK(contains(message_of<RouteUnavailable>([&] { write(*to_right, ours, remote, by("p2p")); }),
                 "has no handle to share"));
}

TEST_CASE_FIXTURE(GpuCouple, "the route names the other GPU, before and after") {
  cuda.gpus = 2;
  cuda.neighbours = {0, 1};
  const Memory ours = array(left, {1000});
  const auto check = [&](int gpu, const char* name, const std::string& reason) {
    const Memory theirs = array(right, {1000}, true, gpu::MemoryKind::plain, nullptr, gpu);
    RemoteMemory remote = theirs.remote();
    remote.device = name;  // as another process counts, with other CUDA_VISIBLE_DEVICES
    const engine::Route route = to_right->route(ours, remote);
    CHECK(route.reason ==
          "both processes are on this host, and cuda:0 copies from and to " + reason);
    const auto written = write(*to_right, ours, remote);
    finish(written);
    CHECK(written->route().reason == route.reason);
    CHECK(written->route().device == "cuda:0");
    const auto again = write(*to_right, ours, remote);
    finish(again);
    CHECK(&again->route() == &written->route());  // created once
    return route.gpus;
  };
  const std::pair<std::string, std::string> both{"ffff:ff:1f.7", "ffff:ff:1f.6"};
  CHECK_FALSE(check(0, "cuda:0", "the peer's cuda:0, which is the same GPU"));
  CHECK_FALSE(check(0, "cuda:3", "the peer's cuda:3, which is the same GPU"));
  CHECK(check(1, "cuda:1", "the peer's cuda:1") == both);
  CHECK(check(1, "cuda:0", "the peer's cuda:0 (cuda:1 in this process)") == both);
}

TEST_CASE_FIXTURE(GpuCouple, "a GPU out of reach is distinguished from one that is not visible") {
  cuda.gpus = 2;
  const Memory ours = array(left, {1000});
  const Memory theirs = array(right, {1000}, true, gpu::MemoryKind::plain, nullptr, 1);
  cuda.refuses_peers = true;
  SUBCASE("not seen") {
    cuda.gpus = 1;
    CHECK(contains(to_right->route(ours, theirs.remote()).reason,
                   "not by p2p, because its GPU is not visible to this process"));
  }
  SUBCASE("no peer access") {
    const std::string reason = to_right->route(ours, theirs.remote()).reason;
    CHECK(contains(reason, "cuda:0 cannot map it: cuCtxEnablePeerAccess"));
    CHECK(contains(reason, "the driver sees no peer access between cuda:0 and cuda:1"));
  }
  SUBCASE("another failure") {
    cuda.neighbours = {0};
    const std::string reason = to_right->route(ours, theirs.remote()).reason;
    CHECK(contains(reason, "cuda:0 cannot map it: cuCtxEnablePeerAccess"));
    CHECK_FALSE(contains(reason, "no peer access"));
  }
}

TEST_CASE_FIXTURE(GpuCouple, "of arrays without elements only the notification goes") {
  const auto [ours, theirs] = arrays({0});
  const auto written = write(*to_right, ours, theirs.remote(), Notification{1, 5});
  finish(written);
  CHECK(contains(written->route().reason, "a notification is one store"));
  CHECK(right.wait_notify(1, 1, true, soon()).second == 5);
}

TEST_CASE_FIXTURE(GpuCouple, "memory at the place of one that was closed is found anew") {
  const Memory ours = array(left, {1000});
  for (unsigned round = 0; round < 3; ++round) {
    Memory theirs = array(right, {1000});
    const std::uint64_t address = theirs.layout().address;
    const Bytes bytes = counted(1000, round);
    put(ours, bytes);
    finish(write(*to_right, ours, theirs.remote()));
    CHECK(get(theirs) == bytes);
    theirs.close();
    cuda.remove(address);
  }
}

TEST_CASE("a peer that leaves ends what a GPU that hangs has to do; memory stays") {
  for (const bool from_host : {false, true}) {
    std::atomic<bool> released = false;
    const HostGpuCouple::Pages pages(1000);
    HostGpuCouple both;
    std::shared_ptr<void> owner(nullptr, [&](void*) { released = true; });
    Memory ours = from_host
                      ? both.left.register_memory(Layout::bytes(pages.address(), 1000), owner, {})
                      : both.array(both.left, {1000}, true, gpu::MemoryKind::plain, owner);
    owner.reset();
    const Memory theirs = both.array(both.right, {1000});
    both.hang(true);
    const auto written = write(*both.to_right, ours, theirs.remote(), Notification{1, 1});
    auto closing = std::async(std::launch::async, [&] { both.to_left->close(within(0)); });
    const std::string lost = error_of(written);
    CHECK(contains(lost, "is lost"));
    CHECK(contains(lost, "some of the data may have been written"));
    ours.close();
    CHECK_FALSE(released);
    both.hang(false);
    closing.get();
    CHECK(eventually([&] { return released.load(); }));
  }
}

TEST_CASE_FIXTURE(GpuCouple, "more copies than a stream takes wait for room, within the timeout") {
  const auto [ours, theirs] = arrays({1000});
  const RemoteMemory remote = theirs.remote();
  hang(true);
  std::vector<TransferPtr> all;
  const auto fill = [&] {
    for (int i = 0; i < 100000; ++i) {
      all.push_back(write(*to_right, ours, remote, by("p2p", {}, 0.05)));
    }
  };
  CHECK(contains(message_of<TransferTimeout>(fill), "give a longer timeout"));
  CHECK(all.size() > 100);
  hang(false);
  for (const auto& one : all) finish(one);
  finish(write(*to_right, ours, remote));
}

TEST_CASE_FIXTURE(GpuCouple, "an Endpoint that is closed leaves nothing to the peer to wait for") {
  auto [ours, theirs] = arrays({1000});
  hang(true);
  const auto written = write(*to_right, ours, theirs.remote());
  auto closing = std::async(std::launch::async, [&] { left.close(within(0)); });
  CHECK(contains(error_of(written), "is lost"));
  hang(false);
  closing.get();
  const auto begin = Deadline::Clock::now();
  theirs.close();
  CHECK(Deadline::Clock::now() - begin < std::chrono::seconds(3));
}

TEST_CASE_FIXTURE(GpuCouple, "a GPU that fails ends its transfers with its error") {
  const auto [ours, theirs] = arrays({1000});
  finish(write(*to_right, ours, theirs.remote()));  // creates everything that is created once
  SUBCASE("while it copies") {
    hang(true);
    const auto written = write(*to_right, ours, theirs.remote());
    cuda.error = 700;
    cuda.fail_at = cuda.calls + 2;  // the context, the query
    CHECK(contains(error_of(written), "CUDA_ERROR_FAKE"));
    CHECK(written->failure()->effect == Effect::some);
    hang(false);
  }
  SUBCASE("when a copy is started") {
    cuda.error = 700;
    for (int call = 1; call <= 4; ++call) {
      cuda.fail_at = cuda.calls + call;
      CHECK_THROWS_AS(write(*to_right, ours, theirs.remote()), CudaError);
      cuda.fail_at = 0;
      finish(write(*to_right, ours, theirs.remote()));  // nothing asks for the last one any more
    }
  }
  const Bytes bytes = counted(1000, 8);
  put(ours, bytes);
  finish(write(*to_right, ours, theirs.remote()));
  CHECK(get(theirs) == bytes);
}

TEST_CASE_FIXTURE(HostGpuCouple, "rights are kept") {
  for (const bool from_host : {true, false}) {
    const Memory ours = from_host ? plain(left, {1000}) : array(left, {1000});
    Memory fixed = array(right, {1000}, false);
    RemoteMemory forged = fixed.remote();
    forged.access |= engine::kRemoteWrite;
    CHECK(contains(error_of(write(*to_right, ours, forged)), "REM_ACCESS_ERR"));
    finish(read(*to_right, ours, fixed.remote()));
    RemoteMemory wider = fixed.remote();
    wider.layout.address += 500;
    CHECK(to_right->route(ours, wider).kind != "p2p");
    const RemoteMemory remote = fixed.remote();
    fixed.close();
    CHECK(contains(error_of(read(*to_right, ours, remote)), "REM_ACCESS_ERR"));
  }
}

TEST_CASE_FIXTURE(HostGpuCouple, "close() of memory waits for the GPU of the peer") {
  std::atomic<bool> released = false;
  const Memory ours = array(left, {1000});
  for (const bool on_host : {false, true}) {
    Memory theirs = on_host
                        ? mapped(right, {1000})
                        : array(right, {1000}, true, gpu::MemoryKind::plain,
                                std::shared_ptr<void>(nullptr, [&](void*) { released = true; }));
    hang(true);
    const auto written = write(*to_right, ours, theirs.remote());
    std::atomic<bool> closed = false;
    auto closing = std::async(std::launch::async, [&] {
      theirs.close();
      closed = true;
    });
    while (!theirs.closed()) std::this_thread::yield();
    for (unsigned i = 1; i < 20; ++i) {
      finish(to_left->notify({1, i}));
      CHECK(left.wait_notify(1, 1, true, soon()).second == i);
    }
    CHECK_FALSE(closed);
    CHECK(released == on_host);  // the one before
    hang(false);
    finish(written);
    closing.get();
    CHECK(eventually([&] { return released.load(); }));
  }
}

TEST_CASE("whatever fails of the first copy, the next ones and notifications go on") {
  for (const Way way : kWays) {
    for (int call = 1; call <= 24; ++call) {
      HostGpuCouple both;
      const auto [ours, theirs] = Arrays(both, way, {3, 1000});
      const Bytes bytes = counted(3000, static_cast<unsigned>(call));
      both.put(ours, bytes);
      both.cuda.error = 700;
      both.cuda.fail_at = both.cuda.calls + call;
      try {
        (void)write(*both.to_right, ours, theirs.remote())->wait(soon());
      } catch (const Error&) {  // an error for a transfer on another route
      }
      both.cuda.fail_at = 0;
      finish(write(*both.to_right, ours, theirs.remote(), Notification{1, 1}));
      CHECK(both.right.wait_notify(1, 1, true, soon()).second == 1);
      CHECK(both.get(theirs) == bytes);
      finish(both.to_right->notify({2, 1}));
    }
  }
}

TEST_CASE_FIXTURE(HostGpuCouple, "transfers go in streams, and into graphs") {
  void* const stream = cuda.copies.program_stream();
  const Memory host = plain(left, {1000});
  const auto [gpu, far_gpu] = arrays({1000});
  const Memory far_host = mapped(right, {1000});
  const Bytes bytes = counted(1000, 9);
  put(host, bytes);
  put(gpu, bytes);
  const auto begin = [&](const Memory& from, const Memory& to) {
    return write(*to_right, from, to.remote(), by("p2p", Notification{5, 7}, {}, stream));
  };
  for (const bool down : {true, false}) {
    const auto written = down ? begin(host, far_gpu) : begin(gpu, far_host);
    CHECK_FALSE(written->wait(within(0.05)));
    CHECK(right.peek_notify(5) == 0);
    REQUIRE(cuda.copies.run(stream));
    CHECK(right.peek_notify(5) == 7);  // put by the GPU: nobody has polled
    CHECK((down ? get(far_gpu) : get(far_host)) == bytes);
    finish(written);
    CHECK(right.wait_notify(5, 1, true, soon()).second == 7);
  }
  cuda.copies.begin_capture(stream);
  begin(host, far_gpu);
  begin(gpu, far_host);
  const auto graph = cuda.copies.end_capture(stream);
  const Bytes others = counted(1000, 10);
  put(host, others);
  put(gpu, others);
  cuda.copies.launch(*graph, stream);
  REQUIRE(cuda.copies.run(stream));
  CHECK(get(far_gpu) == others);
  CHECK(get(far_host) == others);
  CHECK(right.wait_notify(5, 1, true, soon()).second == 8);
}

}  // namespace
}  // namespace zerohop::testing
