// Between host memory in one process and GPU memory in another of the same host: a GPU copies, from
// and to page-locked memory. On fake CUDA, where copies run only when they are queried.
#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "base/error.hpp"
#include "host_gpu_couple.hpp"

namespace zerohop::testing {
namespace {

TEST_CASE_FIXTURE(HostGpuCouple, "a host's array is written to a GPU's, and read from it") {
  const Memory theirs = array(right, {100000});
  const Memory ours = plain(left, {100000});
  const Bytes bytes = counted(100000, 1);
  fill(ours, bytes);
  hang(true);
  const auto written = write(*to_right, ours, theirs.remote());
  CHECK_FALSE(written->done());
  CHECK(is_locked(ours));
  hang(false);
  finish(written);
  CHECK(get(theirs) == bytes);
  CHECK(written->route().kind == "p2p");
  CHECK(written->route().device == "cuda:0");
  const Bytes other = counted(100000, 77);
  put(theirs, other);
  finish(read(*to_right, ours, theirs.remote()));
  CHECK(content(ours) == other);
  CHECK(by_device() == 0);
  CHECK(why_not(ours, theirs) == written->route().reason);
  CHECK(written->route().reason ==
        "both processes are on this host, and cuda:0 copies between page-locked memory of the "
        "host, over its link to the CPU (PCIe on most machines), and the peer's cuda:0, which is "
        "the same GPU");
}

TEST_CASE_FIXTURE(HostGpuCouple, "a GPU's array is written to the host's, and read from it") {
  const Memory theirs = mapped(right, {100000});
  const Memory ours = array(left, {100000});
  const Bytes bytes = counted(100000, 5);
  put(ours, bytes);
  hang(true);
  const auto written = write(*to_right, ours, theirs.remote(), Notification{1, 1});
  CHECK_FALSE(written->done());
  CHECK(content(theirs) == Bytes(100000, std::byte{0xEE}));
  hang(false);
  CHECK(right.wait_notify(1, 1, true, soon()).second == 1);
  CHECK(content(theirs) == bytes);
  finish(written);
  const Bytes other = counted(100000, 8);
  fill(theirs, other);
  finish(read(*to_right, ours, theirs.remote()));
  CHECK(get(ours) == other);
  CHECK(by_device() == 0);
  CHECK(why_not(ours, theirs) == written->route().reason);
  CHECK(contains(written->route().reason,
                 "cuda:0 copies between its memory and the peer's in pages of the host that this "
                 "process has mapped and page-locked"));
}

// Columns, lists, and pages in both directions.
struct Shapes : HostGpuCouple {
  static std::vector<Index> columns(std::int64_t first) {
    return {Slice{}, Slice{first, first + 7}};
  }
  static Bytes with_columns(const Bytes& from) {
    Bytes wanted(6400, std::byte{0xEE});
    for (std::ptrdiff_t row = 0; row < 64; ++row) {
      std::copy_n(from.begin() + row * 100 + 10, 7, wanted.begin() + row * 100 + 80);
    }
    return wanted;
  }
  void write_rows(const Memory& from, const Memory& to) const {
    std::vector<Memory> local;
    std::vector<RemoteMemory> remote;
    for (std::int64_t row = 0; row < 64; ++row) {
      local.push_back(from.slice(std::vector<Index>{Index{row}}));
      remote.push_back(to.slice(std::vector<Index>{Index{63 - row}}).remote());
    }
    std::vector<Peer::Pair> pairs;
    for (std::size_t i = 0; i < 64; ++i) pairs.emplace_back(&local[i], &remote[i]);
    finish(to_right->write(pairs, kByP2p));
  }
  static Bytes reversed(const Bytes& from) {
    Bytes wanted(6400);
    for (std::ptrdiff_t row = 0; row < 64; ++row) {
      std::copy_n(from.begin() + row * 100, 100, wanted.begin() + (63 - row) * 100);
    }
    return wanted;
  }
  void write_pages(const Memory& from, const Memory& to) const {
    std::vector<std::int64_t> here;
    std::vector<std::int64_t> there;
    for (std::int64_t k = 0; k < 64; ++k) {
      here.push_back(k);
      there.push_back(63 - k);
    }
    const RemoteMemory remote = to.remote();
    finish(to_right->write_pages(
        {.local = &from, .remote = &remote, .local_pages = here, .remote_pages = there}, kByP2p));
  }
};

TEST_CASE_FIXTURE(Shapes, "columns, lists and pages go to a GPU") {
  const Memory theirs = array(right, {64, 100});
  const Memory ours = plain(left, {64, 100});
  const Bytes bytes = counted(6400, 3);
  fill(ours, bytes);
  SUBCASE("columns") {
    finish(write(*to_right, ours.slice(columns(10)), theirs.slice(columns(80)).remote()));
    CHECK(get(theirs) == with_columns(bytes));
  }
  SUBCASE("lists") {
    write_rows(ours, theirs);
    CHECK(get(theirs) == reversed(bytes));
  }
  SUBCASE("pages") {
    write_pages(ours, theirs);
    CHECK(get(theirs) == reversed(bytes));
  }
  CHECK(by_device() == 0);
}

TEST_CASE_FIXTURE(Shapes, "columns, lists and pages go to the host") {
  const Memory theirs = mapped(right, {64, 100});
  const Memory ours = array(left, {64, 100});
  const Bytes bytes = counted(6400, 3);
  put(ours, bytes);
  SUBCASE("columns") {
    finish(write(*to_right, ours.slice(columns(10)), theirs.slice(columns(80)).remote()));
    CHECK(content(theirs) == with_columns(bytes));
  }
  SUBCASE("lists") {
    write_rows(ours, theirs);
    CHECK(content(theirs) == reversed(bytes));
  }
  SUBCASE("pages") {
    write_pages(ours, theirs);
    CHECK(content(theirs) == reversed(bytes));
  }
  CHECK(by_device() == 0);
}

TEST_CASE_FIXTURE(HostGpuCouple, "lists of several kinds are distinguished") {
  const Memory host = plain(left, {1000});
  const Memory gpu = array(left, {1000});
  const Memory far_array = array(right, {1000});
  const RemoteMemory far_gpu = far_array.remote();
  const Memory far_mapped = mapped(right, {1000});
  const RemoteMemory far_host = far_mapped.remote();
  const auto refusal = [&](std::vector<Peer::Pair> pairs) {
    const std::string why = message_of<RouteUnavailable>([&] { to_right->write(pairs, kByP2p); });
    const auto served = to_right->write(pairs, {});
    finish(served);
    CHECK(served->route().kind != "p2p");
    return why;
  };
  CHECK(contains(refusal({{&host, &far_gpu}, {&host, &far_host}}),
                 "some of the pairs lie in host memory: move those by a call of their own"));
  finish(to_right->write(std::vector<Peer::Pair>{{&gpu, &far_gpu}, {&gpu, &far_host}}, kByP2p));
  finish(to_right->write(std::vector<Peer::Pair>{{&host, &far_gpu}, {&gpu, &far_host}}, kByP2p));
  cuda.gpus = 2;
  cuda.neighbours = {0, 1};
  const Memory other = array(left, {1000}, true, gpu::MemoryKind::plain, nullptr, 1);
  CHECK(contains(refusal({{&other, &far_host}, {&gpu, &far_host}}), "lie on several GPUs"));
}

TEST_CASE_FIXTURE(HostGpuCouple, "a notification is seen behind the data, whoever writes it") {
  const Memory host = plain(left, {50000});
  const Memory gpu = array(left, {50000});
  const Memory far_gpu = array(right, {50000});
  const Memory far_host = mapped(right, {50000});
  for (unsigned value = 1; value <= 20; ++value) {
    const Bytes bytes = counted(50000, value);
    fill(host, bytes);
    put(gpu, bytes);
    const auto down = write(*to_right, host, far_gpu.remote());
    const auto up = write(*to_right, gpu, far_host.remote());
    engine::TransferPtr last;
    switch (value % 4) {
      case 0: last = to_right->notify({3, value}); break;
      case 1: last = write(*to_right, gpu, far_gpu.remote(), Notification{3, value}); break;
      case 2: last = write(*to_right, host, far_gpu.remote(), Notification{3, value}); break;
      default: last = write(*to_right, host, far_host.remote(), Notification{3, value});
    }
    CHECK(right.wait_notify(3, 1, true, soon()).second == value);
    CHECK(get(far_gpu) == bytes);
    CHECK(content(far_host) == bytes);
    for (const auto& one : {down, up, last}) finish(one);
  }
}

TEST_CASE_FIXTURE(HostGpuCouple, "transfers go in streams, and captured ones are refused") {
  void* const stream = cuda.copies.program_stream();
  const Memory host = plain(left, {1000});
  const Memory gpu = array(left, {1000});
  const Memory far_gpu = array(right, {1000});
  const Memory far_host = mapped(right, {1000});
  const Bytes bytes = counted(1000, 9);
  fill(host, bytes);
  put(gpu, bytes);
  const auto begin = [&](const Memory& from, const Memory& to) {
    const RemoteMemory remote = to.remote();
    const Peer::Pair pair{&from, &remote};
    return to_right->write(
        {&pair, 1},
        {.notify = Notification{5, 7}, .require = "p2p", .timeout = {}, .stream = stream});
  };
  for (const bool down : {true, false}) {
    const auto written = down ? begin(host, far_gpu) : begin(gpu, far_host);
    CHECK_FALSE(written->wait(within(0.05)));
    CHECK(right.peek_notify(5) == 0);
    REQUIRE(cuda.copies.run(stream));
    CHECK(right.peek_notify(5) == 7);  // put by the GPU: nobody has polled
    CHECK((down ? get(far_gpu) : content(far_host)) == bytes);
    finish(written);
    CHECK(right.wait_notify(5, 1, true, soon()).second == 7);
  }
  cuda.captured_stream = stream;
  CHECK(contains(message_of<RouteUnavailable>([&] { begin(host, far_gpu); }), "captured"));
  CHECK(contains(message_of<RouteUnavailable>([&] { begin(gpu, far_host); }), "captured"));
}

TEST_CASE_FIXTURE(HostGpuCouple, "plain memory of the peer is left to the device, and says why") {
  const Memory ours = array(left, {1000});
  const Memory theirs = plain(right, {1000});
  const Bytes bytes = counted(1000, 2);
  put(ours, bytes);
  CHECK(contains(why_not(ours, theirs),
                 "not by p2p, because the remote array lies in plain memory of its process"));
  const auto written = write(*to_right, ours, theirs.remote());
  finish(written);
  CHECK(written->route().kind != "p2p");
  CHECK(content(theirs) == bytes);
  finish(read(*to_left, theirs, ours.remote()));  // the other direction works
  CHECK(to_left->route(theirs, ours.remote()).kind == "p2p");
}

TEST_CASE_FIXTURE(HostGpuCouple, "rights are kept") {
  const Memory ours = plain(left, {1000});
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

TEST_CASE_FIXTURE(HostGpuCouple, "close() of the host's memory waits for the GPU of the peer") {
  const Memory ours = array(left, {1000});
  Memory theirs = mapped(right, {1000});
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
  hang(false);
  finish(written);
  closing.get();
}

TEST_CASE_FIXTURE(HostGpuCouple, "a peer that leaves ends what a GPU that hangs has to do") {
  Memory ours = plain(left, {1000});
  const Memory theirs = array(right, {1000});
  hang(true);
  const auto written = write(*to_right, ours, theirs.remote(), Notification{1, 1});
  auto closing = std::async(std::launch::async, [&] { to_left->close(within(0)); });
  const std::string lost = error_of(written);
  CHECK(contains(lost, "is lost"));
  CHECK(contains(lost, "some of the data may have been written"));
  ours.close();
  CHECK(is_locked(ours));  // the GPU may still read it
  hang(false);
  closing.get();
  CHECK(is_let_go(ours));
}

TEST_CASE("whatever fails of the first copy, the next ones and notifications go on") {
  for (const bool down : {true, false}) {
    for (int call = 1; call <= 24; ++call) {
      HostGpuCouple couple;
      const Memory host = HostGpuCouple::plain(couple.left, {3, 1000});
      const Memory far_host = HostGpuCouple::mapped(couple.right, {3, 1000});
      const Memory gpu = couple.array(couple.left, {3, 1000});
      const Memory far_gpu = couple.array(couple.right, {3, 1000});
      const Memory& ours = down ? host : gpu;
      const Memory& theirs = down ? far_gpu : far_host;
      const Bytes bytes = counted(3000, static_cast<unsigned>(call));
      HostGpuCouple::fill(host, bytes);
      couple.put(gpu, bytes);
      couple.cuda.error = 700;
      couple.cuda.fail_at = couple.cuda.calls + call;
      try {
        (void)write(*couple.to_right, ours, theirs.remote())->wait(soon());
      } catch (const Error&) {  // an error for a transfer on another route
      }
      couple.cuda.fail_at = 0;
      finish(write(*couple.to_right, ours, theirs.remote(), Notification{1, 1}));
      CHECK(couple.right.wait_notify(1, 1, true, soon()).second == 1);
      CHECK((down ? couple.get(far_gpu) : HostGpuCouple::content(far_host)) == bytes);
      finish(couple.to_right->notify({2, 1}));
    }
  }
}

}  // namespace
}  // namespace zerohop::testing
