// Calls that become part of CUDA graphs, and replays: on fake CUDA, where a graph does nothing
// until the test launches it and runs its stream.
#include <atomic>
#include <thread>

#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

using Graph = std::shared_ptr<FakeCopies::Graph>;
constexpr std::uint32_t kSlot = 9;

struct Captures : GpuCouple {
  const Reports reported;
  Memory ours = array(left, {50000});
  Memory theirs = array(right, {50000});
  void* writer = cuda.copies.program_stream();
  void* reader = cuda.copies.program_stream();

  template <typename Calls>
  Graph capture(void* stream, Calls calls) {
    cuda.copies.begin_capture(stream);
    calls();
    return cuda.copies.end_capture(stream);
  }
  TransferPtr write_on(void* stream, const Memory& from, const Memory& to,
                       std::optional<Notification> notify = {}) const {
    return write(*to_right, from, to.remote(), by("", notify, {}, stream));
  }
  Graph writing(std::uint32_t value = 1) {
    return capture(writer, [&] { write_on(writer, ours, theirs, Notification{kSlot, value}); });
  }
  Graph waiting(std::optional<double> timeout = {}) {
    return capture(reader, [&] { right.wait_notify_on(reader, kSlot, true, timeout); });
  }
  // Whether the stream got through it.
  bool replay(const Graph& graph, void* stream) {
    cuda.copies.launch(*graph, stream);
    return cuda.copies.run(stream);
  }
  void run_to_end(void* stream) {
    while (!cuda.copies.run(stream)) std::this_thread::yield();
  }
  bool reports(const std::string& part) const {
    return eventually([&] { return Reports::count(part) > 0; });
  }
};

TEST_CASE_FIXTURE(Captures, "a captured write moves nothing, each replay what is there by then") {
  const auto graph = writing(77);
  CHECK(cuda.copies.run(writer));
  CHECK(get(theirs) == Bytes(50000, std::byte{0xEE}));
  for (unsigned round = 0; round < 4; ++round) {
    const Bytes bytes = counted(50000, round);
    put(ours, bytes);
    REQUIRE(replay(graph, writer));
    CHECK(get(theirs) == bytes);
    CHECK(right.wait_notify(kSlot, 1, true, soon()).second == 77 + round);
  }
}

TEST_CASE_FIXTURE(Captures,
                  "a captured read, of several pieces, with a notification for the peer") {
  const auto pairs_of = [&](const Memory& mine, const RemoteMemory& remote) {
    return read(*to_right, mine, remote, by("p2p", Notification{3, 1}, {}, writer));
  };
  const Memory rows = array(left, {7, 100});
  const Memory far_rows = array(right, {7, 100});
  const std::vector<Index> half{Slice{}, Slice{0, 50}};
  const Memory mine = rows.slice(half);
  const auto graph = capture(writer, [&] { pairs_of(mine, far_rows.slice(half).remote()); });
  put(far_rows, counted(700, 5));
  REQUIRE(replay(graph, writer));
  Bytes expected(700, std::byte{0xEE});
  const Bytes there = counted(700, 5);
  for (std::size_t i = 0; i < 700; ++i) {
    if (i % 100 < 50) expected[i] = there[i];
  }
  CHECK(get(rows) == expected);
  CHECK(right.peek_notify(3) == 1);
}

TEST_CASE_FIXTURE(Captures, "each of a thousand replays waits for the next notification") {
  const auto writes = writing();
  const auto waits = waiting();
  for (unsigned round = 0; round < 1000; ++round) {
    const Bytes bytes = counted(16, round);
    cuda.copies.launch(*waits, reader);
    REQUIRE_FALSE(cuda.copies.run(reader));
    cuda.copies.write(ours.layout().address, bytes);
    REQUIRE(replay(writes, writer));
    REQUIRE(cuda.copies.run(reader));
    REQUIRE(cuda.copies.read(theirs.layout().address, 16) == bytes);
  }
  CHECK(Reports::count() == 0);
  CHECK(right.peek_notify(kSlot) == 0);
}

TEST_CASE_FIXTURE(Captures, "notifications of replays are counted, not lost, before anyone waits") {
  const auto writes = writing();
  const auto waits = waiting();
  for (int time = 0; time < 3; ++time) REQUIRE(replay(writes, writer));
  for (int time = 0; time < 3; ++time) REQUIRE(replay(waits, reader));
  CHECK_FALSE(replay(waits, reader));
  // Another graph counts on in the same slot.
  const auto more = writing(100);
  REQUIRE(replay(more, writer));
  CHECK(cuda.copies.run(reader));
  CHECK_FALSE(replay(waits, reader));
  REQUIRE(replay(writes, writer));
  CHECK(cuda.copies.run(reader));
}

TEST_CASE_FIXTURE(Captures, "a graph that waits takes nothing that was taken before") {
  const auto writes = writing();
  REQUIRE(replay(writes, writer));
  CHECK(right.wait_notify(kSlot, 1, true, soon()).second == 1);
  REQUIRE(replay(writes, writer));
  const auto eager = right.wait_notify_on(reader, kSlot, true, {});
  REQUIRE(cuda.copies.run(reader));
  REQUIRE(eager->wait(soon()));
  CHECK(eager->result() == 2);
  auto waits = waiting();
  CHECK_FALSE(replay(waits, reader));
  REQUIRE(replay(writes, writer));
  CHECK(cuda.copies.run(reader));
  // Nor does one that is captured later, on the same slot.
  const auto second = waiting();
  CHECK_FALSE(replay(second, reader));
  REQUIRE(replay(writes, writer));
  CHECK(cuda.copies.run(reader));
}

TEST_CASE_FIXTURE(Captures, "neither a graph nor a kernel shares a slot with a stream that waits") {
  const auto writes = writing();
  const auto eager = right.wait_notify_on(reader, kSlot, true, {});
  void* const other = cuda.copies.program_stream();
  cuda.copies.begin_capture(other);
  CHECK(contains(
      message_of<RouteUnavailable>([&] { (void)right.wait_notify_on(other, kSlot, true, {}); }),
      "a stream waits for notification slot 9"));
  (void)cuda.copies.end_capture(other);
  CHECK_THROWS_AS((void)right.claim_slots("cuda:0", 8, 2, soon()), RouteUnavailable);
  REQUIRE(replay(writes, writer));
  REQUIRE(cuda.copies.run(reader));
  finish(eager);
  const auto waits = waiting();
  CHECK_FALSE(replay(waits, reader));
  REQUIRE(replay(writes, writer));
  CHECK(cuda.copies.run(reader));
}

TEST_CASE_FIXTURE(Captures, "graphs wait for whatever notifies: the CPU, or a stream without one") {
  const auto waits = waiting();
  CHECK_FALSE(replay(waits, reader));
  to_right->notify({kSlot, 5});
  run_to_end(reader);
  CHECK_FALSE(replay(waits, reader));
  finish(to_left->notify({kSlot, 1}));  // to the other side: no answer here
  CHECK_FALSE(cuda.copies.run(reader));
  const auto written = write_on(writer, ours, theirs, Notification{kSlot, 1});
  REQUIRE(cuda.copies.run(writer));
  CHECK(cuda.copies.run(reader));
  finish(written);
}

TEST_CASE_FIXTURE(Captures, "a notification alone is put behind what the graph did before it") {
  const Memory second = array(left, {1000});
  const Memory into = array(right, {1000});
  const auto graph = capture(writer, [&] {
    write_on(writer, ours, theirs);
    write_on(writer, second, into);
    to_right->write({}, by("", Notification{4, 40}, {}, writer));
  });
  put(second, counted(1000, 3));
  REQUIRE(replay(graph, writer));
  CHECK(right.peek_notify(4) == 40);
  CHECK(get(into) == counted(1000, 3));
}

TEST_CASE_FIXTURE(Captures, "a captured call has no result of its own") {
  TransferPtr written;
  TransferPtr heard;
  const auto writes = capture(writer, [&] { written = write_on(writer, ours, theirs); });
  const auto waits =
      capture(reader, [&] { heard = right.wait_notify_on(reader, kSlot, true, {}); });
  for (const auto& transfer : {written, heard}) {
    CHECK(transfer->done());
    CHECK(contains(error_of(transfer), "has become part of a CUDA graph"));
  }
  CHECK(written->route().kind == "p2p");
}

TEST_CASE_FIXTURE(Captures, "a stream follows a captured call into its graph") {
  TransferPtr written;
  const auto graph = capture(writer, [&] {
    written = write_on(writer, ours, theirs);
    left.wait_transfer_on(reader, written, {});
    CHECK(cuda.copies.is_captured(reader));
    write_on(reader, ours, theirs, Notification{2, 2});
  });
  REQUIRE(replay(graph, writer));
  CHECK(right.peek_notify(2) == 2);
  CHECK(contains(message_of<RouteUnavailable>([&] { left.wait_transfer_on(reader, written, {}); }),
                 "whose capture has ended"));
}

TEST_CASE_FIXTURE(Captures, "a graph waits for a transfer that was begun before") {
  const auto by_gpu = write_on(writer, ours, theirs);
  const auto first = capture(reader, [&] { left.wait_transfer_on(reader, by_gpu, {}); });
  CHECK_FALSE(replay(first, reader));
  REQUIRE(cuda.copies.run(writer));
  run_to_end(reader);
  finish(by_gpu);
  REQUIRE(replay(first, reader));
  const auto [host, far_host] = host_arrays({100});
  const auto by_device = write(*to_right, host, far_host.remote(), by("host"));
  const auto second = capture(reader, [&] { left.wait_transfer_on(reader, by_device, {}); });
  cuda.copies.launch(*second, reader);
  run_to_end(reader);
  CHECK(Reports::count() == 0);
}

TEST_CASE_FIXTURE(Captures, "a replay goes on when nothing comes in its time, and says so") {
  const auto waits = waiting(0.01);
  for (const bool again : {false, true}) {
    cuda.copies.launch(*waits, reader);
    run_to_end(reader);
    REQUIRE(reports("waited for notification slot 9, which did not come in 0.01 s; it went on"));
    Reports::clear();
    if (again) break;
    CHECK(contains(
        message_of<TransferTimeout>([&] { (void)right.wait_notify_on(reader, 1, true, {}); }),
        "notification slot 9"));
  }
  const auto writes = writing();
  REQUIRE(replay(writes, writer));
  REQUIRE(replay(waits, reader));
}

TEST_CASE_FIXTURE(Captures, "replays wait for no peer that is gone, nor for a closed Endpoint") {
  const auto waits = waiting();
  CHECK_FALSE(replay(waits, reader));
  left.close(soon());
  run_to_end(reader);
  CHECK(reports("in vain: peer 'left' is lost"));
  CHECK_THROWS_AS((void)right.wait_notify_on(reader, kSlot, true, {}), PeerLost);
  right.close(soon());
  Reports::clear();
  cuda.copies.launch(*waits, reader);
  run_to_end(reader);
  CHECK(Reports::count() == 0);
}

TEST_CASE_FIXTURE(Captures,
                  "a replay leaves out a peer that is gone, and lets it have its memory") {
  const auto writes = writing();
  REQUIRE(replay(writes, writer));
  const Bytes before = get(theirs);
  right.close(soon());
  CHECK(reports("peer 'right' is no longer connected"));
  CHECK(eventually([&] {
    put(ours, counted(50000, 1));
    REQUIRE(replay(writes, writer));
    const bool left_out = get(theirs) == before;
    put(theirs, before);
    return left_out;
  }));
  CHECK_THROWS_AS(capture(writer, [&] { write_on(writer, ours, theirs); }), PeerLost);
  (void)cuda.copies.end_capture(writer);
  CHECK(Reports::count("still") == 0);  // accesses memory that is being closed
}

TEST_CASE_FIXTURE(Captures,
                  "memory that its owner closes is left out, and the owner need not wait") {
  const Memory second = array(right, {50000});
  const auto writes = writing();
  const auto others = capture(writer, [&] { write_on(writer, ours, second); });
  theirs.close();
  CHECK(reports("peer 'right' has closed memory that CUDA graphs"));
  CHECK(Reports::count("still") == 0);
  put(ours, counted(50000, 2));
  REQUIRE(replay(writes, writer));
  REQUIRE(replay(others, writer));
  CHECK(get(second) == counted(50000, 2));
  CHECK(right.peek_notify(kSlot) == 0);
}

TEST_CASE_FIXTURE(Captures, "a graph keeps what it uses, and gives it back") {
  const auto released = std::make_shared<std::atomic<bool>>(false);
  Graph graph;
  {
    const std::shared_ptr<void> owner(nullptr, [released](void*) { *released = true; });
    const Memory mine = array(left, {1000}, true, gpu::MemoryKind::plain, owner);
    put(mine, counted(1000, 4));
    const Memory into = theirs.slice(std::vector<Index>{Slice{0, 1000}});
    graph = capture(writer, [&] { write_on(writer, mine, into); });
  }
  CHECK_FALSE(released->load());
  REQUIRE(replay(graph, writer));
  CHECK(cuda.copies.read(theirs.layout().address, 1000) == counted(1000, 4));
  graph.reset();
  CHECK(eventually([&] { return released->load(); }));
}

TEST_CASE_FIXTURE(Captures, "a slot is free again once no graph waits for it") {
  auto waits = waiting();
  CHECK(contains(
      message_of<RouteUnavailable>([&] { (void)right.wait_notify_on(reader, kSlot, true, {}); }),
      "a CUDA graph waits for notification slot 9"));
  waits.reset();
  TransferPtr heard;
  REQUIRE(eventually([&] {
    try {
      heard = right.wait_notify_on(reader, kSlot, true, {});
    } catch (const RouteUnavailable&) {
      return false;
    }
    return true;
  }));
  REQUIRE(replay(writing(), writer));
  REQUIRE(cuda.copies.run(reader));
  finish(heard);
}

TEST_CASE_FIXTURE(Captures, "what cannot become part of a graph says why") {
  const auto [host, far_host] = host_arrays({100});
  const RemoteMemory remote = far_host.remote();
  const auto refused = [&](auto call) {
    cuda.copies.begin_capture(writer);
    const std::string said = message_of<RouteUnavailable>(call);
    (void)cuda.copies.end_capture(writer);
    return said;
  };
  for (const char* route : {"", "host"}) {
    CHECK(contains(refused([&] { write(*to_right, host, remote, by(route, {}, {}, writer)); }),
                   "cannot become part of one"));
  }
  CHECK(contains(
      refused([&] { write(*to_right, ours, theirs.remote(), by("staged", {}, {}, writer)); }),
      "cannot become part of one"));
  CHECK(contains(refused([&] { (void)right.wait_notify_on(writer, 1, false, {}); }),
                 "wait_notify(reset=False) cannot become part of a CUDA graph"));
  const std::vector<Index> half{Slice{}, Slice{0, 5}};
  const Memory rows = array(left, {33, 10}).slice(half);
  const Memory far_rows = array(right, {33, 10}).slice(half);
  CHECK(contains(refused([&] { write_on(writer, rows, far_rows); }),
                 "more than 32 separate ranges of bytes"));
}

TEST_CASE("without p2p, or with integrity=1, a capture is refused with the cause") {
  const Reports reported;
  for (const bool checked : {true, false}) {
    CAPTURE(checked);
    engine::EndpointOptions of_left = near("left");
    of_left.integrity = checked;
    of_left.p2p = checked;
    engine::EndpointOptions of_right = near("right");
    of_right.integrity = checked;
    of_right.p2p = checked;
    GpuCouple both(of_left, of_right);
    const auto [ours, theirs] = both.arrays({100});
    void* const stream = both.cuda.copies.program_stream();
    both.cuda.copies.begin_capture(stream);
    CHECK(contains(message_of<RouteUnavailable>([&] {
                     write(*both.to_right, ours, theirs.remote(), by("", {}, {}, stream));
                   }),
                   checked ? "integrity=1" : "cannot become part of one"));
    (void)both.cuda.copies.end_capture(stream);
  }
}

TEST_CASE("a failing driver call while a call is captured leaks nothing") {
  const Reports reported;
  bool failed = true;
  for (int n = 1; failed; ++n) {
    CAPTURE(n);
    GpuCouple both;
    const auto [ours, theirs] = both.arrays({100});
    finish(write(*both.to_right, ours, theirs.remote(), Notification{1, 1}));  // maps everything
    void* const stream = both.cuda.copies.program_stream();
    both.cuda.copies.begin_capture(stream);
    both.cuda.error = 2;
    both.cuda.fail_at = both.cuda.calls + n;
    failed = false;
    try {
      write(*both.to_right, ours, theirs.remote(), by("p2p", Notification{1, 1}, {}, stream));
    } catch (const Error&) {
      failed = true;
    }
    failed = failed || !both.cuda.failed.empty();
    both.cuda.fail_at = 0;
    auto graph = both.cuda.copies.end_capture(stream);
    graph.reset();
  }
}

}  // namespace
}  // namespace zerohop::testing
