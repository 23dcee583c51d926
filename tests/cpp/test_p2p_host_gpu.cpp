// Between host memory in one process and GPU memory in another of the same host: a GPU copies, from
// and to page-locked memory. What holds for GPU memory alone, too: test_p2p_gpu.cpp.
#include <algorithm>
#include <future>
#include <thread>

#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

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
    finish(to_right->write(pairs, by("p2p")));
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
        {.local = &from, .remote = &remote, .local_pages = here, .remote_pages = there},
        by("p2p")));
  }
};

TEST_CASE_FIXTURE(Shapes, "columns, lists and pages go to a GPU and to the host") {
  bool to_gpu = false;
  SUBCASE("to a GPU") { to_gpu = true; }
  SUBCASE("to the host") { to_gpu = false; }
  const Memory theirs = to_gpu ? array(right, {64, 100}) : mapped(right, {64, 100});
  const Memory ours = to_gpu ? plain(left, {64, 100}) : array(left, {64, 100});
  const Bytes bytes = counted(6400, 3);
  put(ours, bytes);
  finish(write(*to_right, ours.slice(columns(10)), theirs.slice(columns(80)).remote()));
  CHECK(get(theirs) == with_columns(bytes));
  write_rows(ours, theirs);
  CHECK(get(theirs) == reversed(bytes));
  put(theirs, Bytes(6400, std::byte{0xEE}));
  write_pages(ours, theirs);
  CHECK(get(theirs) == reversed(bytes));
  CHECK(by_device() == 0);
}

TEST_CASE_FIXTURE(HostGpuCouple, "lists of several kinds are distinguished") {
  const Memory host = plain(left, {1000});
  const auto [gpu, far_array] = arrays({1000});
  const RemoteMemory far_gpu = far_array.remote();
  const Memory far_mapped = mapped(right, {1000});
  const RemoteMemory far_host = far_mapped.remote();
  const auto refusal = [&](std::vector<Peer::Pair> pairs) {
    const std::string why =
        message_of<RouteUnavailable>([&] { to_right->write(pairs, by("p2p")); });
    const auto served = to_right->write(pairs, {});
    finish(served);
    CHECK(served->route().kind != "p2p");
    return why;
  };
  CHECK(contains(refusal({{&host, &far_gpu}, {&host, &far_host}}),
                 "some of the pairs lie in host memory: move those by a call of their own"));
  finish(to_right->write(std::vector<Peer::Pair>{{&gpu, &far_gpu}, {&gpu, &far_host}}, by("p2p")));
  finish(to_right->write(std::vector<Peer::Pair>{{&host, &far_gpu}, {&gpu, &far_host}}, by("p2p")));
  cuda.gpus = 2;
  cuda.neighbours = {0, 1};
  const Memory other = array(left, {1000}, true, gpu::MemoryKind::plain, nullptr, 1);
  CHECK(contains(refusal({{&other, &far_host}, {&gpu, &far_host}}), "lie on several GPUs"));
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
  CHECK(get(theirs) == bytes);
  finish(read(*to_left, theirs, ours.remote()));  // the other direction works
  CHECK(to_left->route(theirs, ours.remote()).kind == "p2p");
}

// --- which pages are locked, for how long, and what happens where they cannot be ---

TEST_CASE_FIXTURE(HostGpuCouple, "whole pages of all the array are locked, until it is closed") {
  const Memory theirs = array(right, {100});
  const auto pages = std::make_shared<Pages>(40960);
  Memory ours = part(left, pages, 5000, {30000});
  const Memory some = ours.slice(std::vector<Index>{Slice{20000, 20100}});
  finish(write(*to_right, some, theirs.remote()));
  const std::map<std::uint64_t, std::uint64_t> wanted{
      {pages->address() + 4096, pages->address() + 36864}};
  const auto of_pages = [&] {
    auto all = cuda.copies.registered();
    std::erase_if(all, [&](const auto& range) {
      return range.first < pages->address() || range.first >= pages->address() + pages->nbytes;
    });
    return all;
  };
  CHECK(of_pages() == wanted);
  finish(write(*to_right, some, theirs.remote()));
  CHECK(of_pages() == wanted);
  ours.close();
  CHECK(is_let_go(ours));
}

TEST_CASE_FIXTURE(HostGpuCouple, "arrays share pages, and the last one lets them go") {
  const Memory theirs = array(right, {3000});
  const auto pages = std::make_shared<Pages>(8192);
  Memory first = part(left, pages, 100, {3000});
  Memory second = part(left, pages, 3100, {3000});  // across the end of the first page
  const Bytes bytes = counted(3000, 6);
  put(second, bytes);
  finish(write(*to_right, first, theirs.remote()));
  finish(write(*to_right, second, theirs.remote()));
  CHECK(get(theirs) == bytes);
  CHECK(by_device() == 0);
  first.close();
  for (unsigned i = 1; i < 20; ++i) finish(to_right->notify({1, i}));
  CHECK(is_locked(first));
  finish(read(*to_right, second, theirs.remote()));
  second.close();
  CHECK(is_let_go(first));
  CHECK(is_let_go(second));
}

TEST_CASE_FIXTURE(HostGpuCouple, "an array that is registered for each call has its pages again") {
  const Memory theirs = array(right, {3000});
  const auto pages = std::make_shared<Pages>(4096);
  for (unsigned round = 0; round < 50; ++round) {
    Memory ours = part(left, pages, 0, {3000});
    const Bytes bytes = counted(3000, round);
    put(ours, bytes);
    finish(write(*to_right, ours, theirs.remote(), by("p2p")));
    CHECK(get(theirs) == bytes);
    ours.close();
  }
}

TEST_CASE_FIXTURE(HostGpuCouple, "the peer's pages are released once it has closed them") {
  const Memory ours = array(left, {1000});
  Memory theirs = mapped(right, {1000});
  const auto before = cuda.copies.registered().size();
  finish(write(*to_right, ours, theirs.remote()));
  CHECK(cuda.copies.registered().size() == before + 1);
  theirs.close();
  CHECK(eventually([&] { return cuda.copies.registered().size() == before; }));
}

TEST_CASE_FIXTURE(HostGpuCouple, "what cannot be locked is left to the device, which says why") {
  const Memory host = plain(left, {1000});
  const Memory far_host = mapped(right, {1000});
  const auto [gpu, far_gpu] = arrays({1000});
  const auto check = [&](const Memory& ours, const Memory& theirs) {
    cuda.error = 304;
    cuda.refuses_registration = true;
    const std::string reason = why_not(ours, theirs);
    CHECK(contains(reason,
                   "not by p2p, because the host's memory cannot be page-locked for "
                   "cuda:0: cuMemHostRegister of 4096 bytes of the host"));
    CHECK(contains(reason, "(304)"));
    const RemoteMemory remote = theirs.remote();
    CHECK(contains(message_of<RouteUnavailable>([&] { write(*to_right, ours, remote, by("p2p")); }),
                   "cannot be page-locked"));
    const int calls = cuda.registrations;
    const auto written = write(*to_right, ours, remote);
    CHECK(written->route().kind != "p2p");
    finish(written);
    CHECK(cuda.registrations == calls);  // not retried each time
    cuda.refuses_registration = false;
  };
  const Bytes bytes = counted(1000, 4);
  put(host, bytes);
  put(gpu, bytes);
  check(host, far_gpu);
  CHECK(get(far_gpu) == bytes);
  check(gpu, far_host);
  CHECK(get(far_host) == bytes);
}

TEST_CASE_FIXTURE(HostGpuCouple, "pages that are mapped read-only are locked to be read") {
  const Memory theirs = array(right, {1000});
  const auto pages = std::make_shared<Pages>(4096);
  cuda.copies.make_read_only(pages->address(), pages->nbytes);
  const Bytes bytes = counted(1000, 12);
  std::ranges::copy(bytes, pages->data);
  const Memory fixed = part(left, pages, 0, {1000}, false);
  const auto written = write(*to_right, fixed, theirs.remote());
  finish(written);
  CHECK(written->route().kind == "p2p");
  CHECK(get(theirs) == bytes);
  CHECK(contains(
      message_of<std::invalid_argument>([&] { (void)read(*to_right, fixed, theirs.remote()); }),
      "read-only array"));
  const Memory other = part(left, pages, 2000, {1000});  // claims to be writable
  CHECK(contains(why_not(other, theirs), "its pages are page-locked to be read only"));
}

TEST_CASE_FIXTURE(HostGpuCouple, "what the program has locked is used as it is") {
  const Memory theirs = array(right, {6000});
  const auto pages = std::make_shared<Pages>(8192);
  const Memory ours = part(left, pages, 0, {6000});
  const Bytes bytes = counted(6000, 3);
  put(ours, bytes);
  REQUIRE(cuda.copies.register_pages(pages->data, 8192) == 0);
  cuda.add(gpu::MemoryKind::pinned, pages->address(), 8192);
  SUBCASE("and stays the program's to unlock") {
    const int calls = cuda.registrations;
    const auto written = write(*to_right, ours, theirs.remote());
    finish(written);
    CHECK(written->route().kind == "p2p");
    CHECK(get(theirs) == bytes);
    CHECK(cuda.registrations == calls);
    REQUIRE(cuda.copies.unregister_pages(pages->data) == 0);
    cuda.remove(pages->address());
    finish(write(*to_right, ours, theirs.remote()));
    CHECK(cuda.registrations == calls + 1);
    CHECK(is_locked(ours));
  }
  SUBCASE("also where the driver does not say how far it reaches") {
    cuda.find(pages->address())->range = {};
    const auto written = write(*to_right, ours, theirs.remote());
    finish(written);
    CHECK(written->route().kind == "p2p");
    CHECK(get(theirs) == bytes);
    REQUIRE(cuda.copies.unregister_pages(pages->data) == 0);
  }
  SUBCASE("but not where GPUs have another address for it") {
    cuda.find(pages->address())->shift_on_gpu = 1 << 20;
    CHECK(contains(why_not(ours, theirs), "write-combined memory?"));
    finish(write(*to_right, ours, theirs.remote()));
    CHECK(get(theirs) == bytes);
    REQUIRE(cuda.copies.unregister_pages(pages->data) == 0);
  }
  SUBCASE("but not where it is only a part") {
    REQUIRE(cuda.copies.unregister_pages(pages->data) == 0);
    REQUIRE(cuda.copies.register_pages(pages->data + 4096, 4096) == 0);
    cuda.remove(pages->address());
    cuda.add(gpu::MemoryKind::pinned, pages->address() + 4096, 4096);
    CHECK(contains(why_not(ours, theirs), "the program has page-locked a part of those pages"));
    finish(write(*to_right, ours, theirs.remote()));
    CHECK(get(theirs) == bytes);
    REQUIRE(cuda.copies.unregister_pages(pages->data + 4096) == 0);
  }
}

// --- which GPU copies ---

struct Choice : HostGpuCouple {
  Choice() {
    cuda.gpus = 2;
    cuda.neighbours = {0, 1};
  }
  Memory far(int gpu) { return array(right, {1000}, true, gpu::MemoryKind::plain, nullptr, gpu); }
  Memory ours = plain(left, {1000});
};

TEST_CASE_FIXTURE(Choice, "a host's array is copied by the very GPU that the other one lies on") {
  const Memory theirs = far(1);
  RemoteMemory remote = theirs.remote();
  remote.device = "cuda:5";  // as another process counts, with other CUDA_VISIBLE_DEVICES
  const engine::Route route = to_right->route(ours, remote);
  CHECK(route.device == "cuda:1");
  CHECK(contains(route.reason, "the peer's cuda:5, which is the same GPU"));
  CHECK_FALSE(route.gpus);
  const auto written = write(*to_right, ours, remote);
  finish(written);
  CHECK(written->route().device == "cuda:1");
}

TEST_CASE_FIXTURE(Choice, "a GPU that is not seen here is reached by the first that can") {
  // By descriptor: within one process an address would suffice.
  const Memory theirs = right.empty(std::vector<std::int64_t>{1000}, kByte, "cuda:1");
  cuda.gpus = 1;
  const engine::Route route = to_right->route(ours, theirs.remote());
  CHECK(route.device == "cuda:0");
  CHECK(contains(route.reason, "which this process has mapped but does not see"));
  const auto written = write(*to_right, ours, theirs.remote());
  finish(written);
  CHECK(written->route().device == "cuda:0");
}

TEST_CASE_FIXTURE(Choice, "in a stream it is the GPU of the stream") {
  void* const stream = cuda.copies.program_stream();  // of cuda:0
  const Memory theirs = far(1);
  const auto written = write(*to_right, ours, theirs.remote(), by("", {}, {}, stream));
  CHECK(written->route().device == "cuda:0");
  CHECK(contains(written->route().reason, "and the peer's cuda:1"));
  REQUIRE(cuda.copies.run(stream));
  finish(written);
}

TEST_CASE_FIXTURE(Choice, "a process without a GPU leaves it to the device") {
  const Memory theirs = far(0);
  cuda.gpus = 0;
  CHECK(contains(why_not(ours, theirs), "this process has no GPU that could copy: the driver"));
  const int calls = cuda.calls;
  finish(write(*to_right, ours, theirs.remote()));
  CHECK(cuda.calls - calls < 50);
}

TEST_CASE_FIXTURE(Choice, "a GPU with other addresses for the host's memory does not copy it") {
  cuda.attributes[driver::kCudaSameRegisteredAddress] = 0;
  const Memory theirs = far(0);
  CHECK(contains(why_not(ours, theirs), "has other addresses for host memory"));
  finish(write(*to_right, ours, theirs.remote()));
}

}  // namespace
}  // namespace zerohop::testing
