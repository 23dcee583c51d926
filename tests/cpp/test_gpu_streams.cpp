// Transfers in stream order, and streams that wait for them: on fake CUDA, where a stream does
// nothing until the test runs it.
#include <atomic>
#include <thread>

#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

struct Streams : GpuCouple {
  const Reports reported;
  Memory ours = array(left, {50000});
  Memory theirs = array(right, {50000});
  void* writer = cuda.copies.program_stream();
  void* reader = cuda.copies.program_stream();

  TransferPtr write_on(void* stream, const Memory& from, const Memory& to,
                       std::optional<Notification> notify = {}) const {
    return write(*to_right, from, to.remote(), by("", notify, {}, stream));
  }
  std::uint64_t value_of(const TransferPtr& wait) const {
    REQUIRE(wait->wait(soon()));
    return wait->result();
  }
};

TEST_CASE_FIXTURE(Streams, "a write begins when its stream gets there, and notifies from there") {
  const Bytes bytes = counted(50000, 3);
  put(ours, bytes);
  const auto written = write_on(writer, ours, theirs, Notification{5, 77});
  CHECK(written->route().kind == "p2p");
  CHECK_FALSE(written->wait(within(0.05)));
  CHECK(get(theirs) == Bytes(50000, std::byte{0xEE}));
  CHECK(right.peek_notify(5) == 0);
  REQUIRE(cuda.copies.run(writer));
  CHECK(right.peek_notify(5) == 77);  // put by the GPU: nobody has polled
  CHECK(get(theirs) == bytes);
  finish(written);
  CHECK(right.wait_notify(5, 1, true, soon()).second == 77);
}

TEST_CASE_FIXTURE(Streams, "a thread that sleeps until a GPU's notification is woken") {
  const Bytes bytes = counted(50000, 4);
  put(ours, bytes);
  write_on(writer, ours, theirs, Notification{5, 1});
  std::atomic<std::uint32_t> heard{0};
  std::thread sleeper([&] { heard = right.wait_notify(5, 1, true, soon()).second; });
  std::thread among_many([&] { (void)right.wait_notify(100, 60000, true, soon()); });
  REQUIRE(cuda.copies.run(writer));
  sleeper.join();
  CHECK(heard == 1);
  write_on(writer, ours, theirs, Notification{7000, 2});
  REQUIRE(cuda.copies.run(writer));
  among_many.join();
}

TEST_CASE_FIXTURE(Streams, "a stream waits for a notification, and returns its value") {
  const auto waiting = right.wait_notify_on(reader, 9, true, {});
  CHECK_FALSE(cuda.copies.run(reader));
  CHECK_FALSE(waiting->wait(within(0.02)));
  write_on(writer, ours, theirs, Notification{9, 123});
  REQUIRE(cuda.copies.run(writer));
  REQUIRE(cuda.copies.run(reader));
  CHECK(value_of(waiting) == 123);
  CHECK(right.peek_notify(9) == 0);
  to_right->notify({9, 5});  // by the CPU, for the same reader
  const auto kept = right.wait_notify_on(reader, 9, false, {});
  while (!cuda.copies.run(reader)) std::this_thread::yield();
  CHECK(value_of(kept) == 5);
  CHECK(right.reset_notify(9) == 5);
}

TEST_CASE_FIXTURE(Streams, "a stream goes on when nothing comes in its time, and says so") {
  const auto waiting = right.wait_notify_on(reader, 9, true, 0.01);
  while (!cuda.copies.run(reader)) std::this_thread::yield();
  CHECK(contains(error_of(waiting),
                 "waited for notification slot 9, which did not come in 0.01 s; it continues"));
  CHECK(Reports::count() == 1);
}

TEST_CASE_FIXTURE(Streams, "a stream is not left waiting for peers that are gone") {
  const auto waiting = right.wait_notify_on(reader, 9, true, {});
  CHECK_FALSE(cuda.copies.run(reader));
  left.close(soon());
  while (!cuda.copies.run(reader)) std::this_thread::yield();
  CHECK(contains(error_of(waiting), "in vain"));
  CHECK_THROWS_AS(waiting->result(), PeerLost);
}

TEST_CASE_FIXTURE(Streams, "closing ends what streams wait for") {
  const auto waiting = right.wait_notify_on(reader, 9, true, {});
  std::atomic<bool> stop{false};
  std::thread gpu([&] {
    while (!stop) cuda.copies.run(reader);
  });
  right.close(soon());
  stop = true;
  gpu.join();
  CHECK(contains(error_of(waiting), "the Endpoint was closed"));
}

TEST_CASE("what a wait on a GPU that failed may still write stays for good") {
  const Reports reported;
  FakeCuda cuda;  // without AllGivenBack: not all is freed
  void* reader = cuda.copies.program_stream();
  {
    engine::Endpoint alone{with_gpu(near("alone"), cuda)};
    const std::uint64_t address = cuda.add_bytes(16);
    const Memory known = alone.register_memory(Layout::bytes(address, 16), nullptr,
                                               {.writable = true, .device = "cuda:0"});
    const auto waiting = alone.wait_notify_on(reader, 9, true, {});
    CHECK_FALSE(cuda.copies.run(reader));
    CHECK(cuda.urgent_streams == 1);
    cuda.error = 700;
    cuda.fail_at = cuda.calls + 1;  // of the thread that polls the result
    CHECK(contains(error_of(waiting), "CUDA_ERROR_FAKE"));
    CHECK(Reports::count() == 1);
  }
  for (const Deadline moment = within(0.1); cuda.retained > 0 && !moment.passed();) {
    std::this_thread::yield();
  }
  CHECK_FALSE(cuda.copies.run(reader));  // reads the word, and would write its result
}

TEST_CASE_FIXTURE(Streams, "a stream waits for a transfer, whoever makes it") {
  put(ours, counted(50000, 8));
  const auto before = write(*to_right, ours, theirs.remote());
  finish(before);
  const auto at_once = left.wait_transfer_on(reader, before, {});
  REQUIRE(cuda.copies.run(reader));
  CHECK(value_of(at_once) == 0);
  hang(true);
  const auto by_gpu = write(*to_right, ours, theirs.remote());
  const auto behind = left.wait_transfer_on(reader, by_gpu, {});
  hang(false);
  finish(by_gpu);
  REQUIRE(cuda.copies.run(reader));
  CHECK(value_of(behind) == 0);
  const auto [host, far_host] = host_arrays({100});
  const auto by_device = write(*to_right, host, far_host.remote(), by("host"));
  const auto next = left.wait_transfer_on(reader, by_device, {});
  while (!cuda.copies.run(reader)) std::this_thread::yield();
  CHECK(value_of(next) == 0);
  CHECK(by_device->done());
}

TEST_CASE_FIXTURE(Streams, "a stream that waits for a transfer hears of its failure") {
  auto [host, far_host] = host_arrays({100});
  const RemoteMemory remote = far_host.remote();
  far_host.close();
  const auto refused = write(*to_right, host, remote, by("host"));
  const auto behind = left.wait_transfer_on(reader, refused, {});
  while (!cuda.copies.run(reader)) std::this_thread::yield();
  CHECK(contains(error_of(behind), "REM_ACCESS_ERR"));
  CHECK(Reports::count() == 1);
}

TEST_CASE_FIXTURE(Streams, "streams are in no order among each other, but behind other calls") {
  void* second = cuda.copies.program_stream();
  const Memory a = array(left, {1000});
  const Memory b = array(left, {1000});
  put(a, counted(1000, 1));
  put(b, counted(1000, 2));
  const Memory into_a = array(right, {1000});
  const Memory into_b = array(right, {1000});
  const auto first = write_on(writer, a, into_a, Notification{1, 1});
  const auto other = write_on(second, b, into_b, Notification{2, 2});
  REQUIRE(cuda.copies.run(second));
  finish(other);
  CHECK(right.peek_notify(2) == 2);
  CHECK_FALSE(first->done());
  // Without a stream: after everything, and later calls follow it.
  const auto third = to_right->notify({3, 3});
  CHECK_FALSE(third->wait(within(0.02)));
  REQUIRE(cuda.copies.run(writer));
  finish(first);
  finish(third);
  CHECK(right.wait_notify(3, 1, true, soon()).second == 3);
  hang(true);
  const auto fourth = write(*to_right, ours, theirs.remote());
  const auto fifth = write_on(writer, a, into_a, Notification{4, 4});
  CHECK_FALSE(cuda.copies.run(writer));
  CHECK(right.peek_notify(4) == 0);
  hang(false);
  while (!cuda.copies.run(writer)) std::this_thread::yield();
  CHECK(get(theirs) == get(ours));
  finish(fourth);
  finish(fifth);
}

TEST_CASE_FIXTURE(Streams, "what a stream still has to do holds the owner's memory") {
  write_on(writer, ours, theirs);
  std::atomic<bool> closed{false};
  std::thread owner([&] {
    theirs.close();
    closed = true;
  });
  const Deadline moment = within(0.05);
  while (!moment.passed()) CHECK_FALSE(closed);
  REQUIRE(cuda.copies.run(writer));
  owner.join();
}

TEST_CASE_FIXTURE(Streams, "streams that cannot be used are refused with the reason") {
  cuda.foreign_stream = writer;
  CHECK(contains(message_of<RouteUnavailable>([&] { write_on(writer, ours, theirs); }),
                 "is not a stream of cuda:0"));
  cuda.foreign_stream = nullptr;
  CHECK(contains(
      message_of<RouteUnavailable>([&] { (void)right.wait_notify_on(nullptr, 1, true, {}); }),
      "no GPU is current in this thread"));
  CHECK_THROWS_AS((void)right.wait_notify_on(writer, 65536, true, {}), std::out_of_range);
}

TEST_CASE_FIXTURE(Streams, "a GPU notifies when its stream gets there, behind its work") {
  const Bytes bytes = counted(50000, 6);
  put(ours, bytes);
  write_on(writer, ours, theirs);
  const auto notified = to_right->write({}, by("", Notification{6, 66}, {}, writer));
  CHECK_FALSE(notified->wait(within(0.02)));
  CHECK(right.peek_notify(6) == 0);
  REQUIRE(cuda.copies.run(writer));
  CHECK(right.peek_notify(6) == 66);  // put by the GPU: nobody has polled
  CHECK(get(theirs) == bytes);
  finish(notified);
  CHECK(right.wait_notify(6, 1, true, soon()).second == 66);
}

TEST_CASE_FIXTURE(Streams, "on other routes the call waits for the stream") {
  const auto [host, far_host] = host_arrays({100});
  const auto waiting = left.wait_notify_on(writer, 1, true, {});  // keeps the stream busy
  const RemoteMemory remote = far_host.remote();
  for (const char* route : {"p2p", "host"}) {
    CHECK(contains(message_of<TransferTimeout>(
                       [&] { write(*to_right, host, remote, by(route, {}, 0.02, writer)); }),
                   "earlier work in the stream did not end in time"));
  }
  to_left->notify({1, 1});
  while (!cuda.copies.run(writer)) std::this_thread::yield();
  finish(write(*to_right, host, remote, by("host", {}, {}, writer)));
  (void)value_of(waiting);
}

TEST_CASE_FIXTURE(Streams, "where GPUs cannot put notifications the CPU does") {
  cuda.attributes[driver::kCudaSameRegisteredAddress] = 0;
  engine::Endpoint third{with_gpu(near("third"), cuda)};
  const auto peer = third.connect(right.address().to_bytes(), soon());
  const Memory own = array(third, {1000});
  put(own, counted(1000, 9));
  const RemoteMemory remote = theirs.slice(std::vector<Index>{Slice{0, 1000}}).remote();
  const auto written = write(*peer, own, remote, by("p2p", Notification{8, 8}, {}, writer));
  REQUIRE(cuda.copies.run(writer));
  finish(written);
  CHECK(right.wait_notify(8, 1, true, soon()).second == 8);
}

}  // namespace
}  // namespace zerohop::testing
