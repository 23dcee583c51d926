// What kernels receive, and when it is released.
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "driver/cuda_constants.hpp"
#include "gda/device_board.hpp"
#include "gda/device_queue.hpp"
#include "gpu/copy_ring.hpp"
#include "gpu/device_guard.hpp"
#include "gpu_couple.hpp"
#include "kernel_ring.hpp"
#include "no_threads.hpp"

namespace zerohop::testing {
namespace {

struct Queues : GpuCouple {
  Memory ours = array(left, {100});
  Memory theirs = array(right, {100});
  engine::RemoteMemory behind = theirs.remote();

  std::unique_ptr<gda::DeviceQueue> queue_to(const engine::RemoteMemory& remote,
                                             const gda::DeviceQueue::Options& options = {}) {
    return std::make_unique<gda::DeviceQueue>(gda::QueueArrays{left, to_right, ours, remote},
                                              options, soon());
  }
  std::unique_ptr<gda::DeviceQueue> queue(engine::Hearers hearers = engine::Hearers::both) {
    return queue_to(theirs.remote(), {.hearers = hearers});
  }
  std::unique_ptr<gda::DeviceBoard> board() {
    return std::make_unique<gda::DeviceBoard>(right.claim_slots("cuda:0", 5, 3, soon()), soon());
  }
  template <typename Value>
  Value on_gpu(std::uint64_t address) {
    const Bytes bytes = cuda.copies.read(address, sizeof(Value));
    Value value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  // As a kernel of the left endpoint does.
  void notify(const device::Queue& queue, std::uint32_t slot, std::uint32_t value) {
    const gpu::Note note = gpu::make_note(value, queue.writer * gpu::kFirstTag + value);
    Bytes bytes(sizeof note);
    std::memcpy(bytes.data(), &note, sizeof note);
    if (queue.mirrors != 0) cuda.copies.write(queue.mirrors + slot * sizeof note, bytes);
    if (queue.notes != 0) reinterpret_cast<std::atomic<gpu::Note>*>(queue.notes)[slot] = note;
  }
  void let_go_on() {
    cuda.busy = false;
    cuda.busy.notify_all();
  }
};

TEST_CASE_FIXTURE(Queues, "a queue names both arrays, and lies in the GPU's memory, too") {
  const auto made = queue();
  const device::Queue& value = made->value();
  CHECK(value.local == ours.layout().address);
  CHECK(value.local_nbytes == 100);
  CHECK(value.remote != 0);
  CHECK(value.remote_nbytes == 100);
  CHECK(value.slots == 65536);
  CHECK((value.rights & (device::kPut | device::kGet)) == (device::kPut | device::kGet));
  const auto there = on_gpu<device::Queue>(made->address());
  CHECK(std::memcmp(&there, &value, sizeof value) == 0);
  CHECK(made->route().kind == "p2p");
  CHECK(made->way() == std::string("mapped"));
  CHECK(value.way == device::Way::mapped);
}

TEST_CASE_FIXTURE(Queues, "the hearers decide where notifications go") {
  const auto both = queue();
  CHECK(both->value().mirrors != 0);
  CHECK(both->value().notes != 0);
  CHECK(queue(engine::Hearers::kernels)->value().notes == 0);
  CHECK(queue(engine::Hearers::cpu)->value().mirrors == 0);
  notify(both->value(), 9, 4);
  CHECK(right.wait_notify(9, 1, true, soon()).second == 4);
}

TEST_CASE_FIXTURE(Queues, "a closed queue is released after the kernels") {
  auto made = queue();
  cuda.busy = true;
  const int allocated = cuda.allocated;
  made.reset();  // returns all the same
  CHECK(cuda.allocated == allocated);
  let_go_on();
  CHECK(eventually([&] { return cuda.allocated < allocated; }));
}

TEST_CASE_FIXTURE(Queues, "what others had is not given back while a queue is open") {
  const auto device = gpu::Device::open(cuda.table(), 0);
  auto made = queue();
  const int pinned = cuda.copies.pinned();
  {
    const gpu::CopyRing ring(device, 2, 64);
  }
  CHECK(cuda.copies.pinned() == pinned + 1);
  made.reset();
  CHECK(eventually([&] { return cuda.copies.pinned() < pinned; }));  // its own memory, too
}

TEST_CASE_FIXTURE(Queues, "a queue that is closed beside another is given back behind that") {
  auto made = queue();
  auto other = queue();
  const int allocated = cuda.allocated;
  const NoThreads none;  // work for separate threads is done when the call returns
  made.reset();
  CHECK(cuda.allocated == allocated);
  other.reset();
  CHECK(cuda.allocated <= allocated - 2);
}

TEST_CASE_FIXTURE(Queues, "during a capture a queue is not released") {
  auto made = queue();
  cuda.capturing = true;
  const int allocated = cuda.allocated;
  const int calls = cuda.calls;
  made.reset();
  CHECK(eventually([&] { return cuda.calls > calls + 3; }));  // it polls repeatedly
  CHECK(cuda.allocated == allocated);
  cuda.capturing = false;
  CHECK(eventually([&] { return cuda.allocated < allocated; }));
}

TEST_CASE_FIXTURE(Queues, "slots are for kernels until those have ended") {
  const auto writer = queue();
  auto made = board();
  CHECK(made->value().first == 5);
  CHECK(made->value().slots == 3);
  CHECK(on_gpu<device::Board>(made->address()).notes == made->value().notes);
  cuda.busy = true;
  made.reset();
  notify(writer->value(), 6, 21);
  CHECK(right.peek_notify(6) == 0);
  let_go_on();
  CHECK(eventually([&] { return right.peek_notify(6) == 21; }));
}

TEST_CASE_FIXTURE(Queues, "a thread of the host serves where kernels reach nothing by themselves") {
  const Memory host = right.empty({{100}}, kByte);
  const auto made = queue_to(host.remote());
  CHECK(made->way() == std::string("proxy"));
  CHECK(contains(made->route().reason, "it is the host's"));
  CHECK(made->route().kind == "staged");
  const device::Queue value = made->value();
  CHECK(value.way == device::Way::ring);
  CHECK(value.rights == (device::kPut | device::kGet | device::kAtomics));
  const auto there = on_gpu<device::Queue>(made->address());
  CHECK(std::memcmp(&there, &value, sizeof value) == 0);
  KernelRing ring(on_gpu<device::RingWay>(value.ring), cuda.copies);
  const Bytes bytes = counted(100, 3);
  put(ours, bytes);
  device::Ticket ticket;
  REQUIRE(ring.calls.put_notify(0, 0, 100, 4, 8, ticket) == device::Status::ok);
  CHECK(right.wait_notify(4, 1, true, soon()).second == 8);
  CHECK(std::memcmp(reinterpret_cast<void*>(host.layout().address), bytes.data(), 100) == 0);
  std::uint64_t old = 0;
  REQUIRE(ring.calls.fetch_add(0, 1, old) == device::Status::ok);
  CHECK(std::memcmp(&old, bytes.data(), sizeof old) == 0);
  REQUIRE(ring.calls.get(0, 50, 50, ticket) == device::Status::ok);
  REQUIRE(ring.calls.wait(ticket, ring.way.patience) == device::Status::ok);
  CHECK(get(ours)[51] == bytes[1]);
  CHECK(made->error().empty());
}

TEST_CASE_FIXTURE(Queues, "what kernels keep busy holds up nothing that the proxy moves") {
  const auto made = queue_to(theirs.remote(), {.way = gda::WantedWay::proxy});
  KernelRing ring(on_gpu<device::RingWay>(made->value().ring), cuda.copies);
  put(ours, counted(100, 5));
  // The default stream waits for something that never comes.
  const gpu::DeviceGuard guard(*ours.registration()->device);
  const auto waits = left.wait_notify_on(driver::kCudaLegacyStream, 50, true, kTimeout);
  device::Ticket ticket;
  REQUIRE(ring.calls.put(0, 0, 100, ticket) == device::Status::ok);
  CHECK(ring.calls.wait(ticket, ring.way.patience) == device::Status::ok);
  CHECK(get(theirs) == counted(100, 5));
  CHECK(!waits->done());
  finish(to_left->notify({50, 1}));
  while (!cuda.copies.run(driver::kCudaLegacyStream)) std::this_thread::yield();
  finish(waits);
}

TEST_CASE_FIXTURE(Queues, "kernels drive a queue pair by themselves") {
  const auto made = queue_to(theirs.remote(), {.way = gda::WantedWay::direct});
  CHECK(made->way() == std::string("direct"));
  CHECK(contains(made->route().reason, "ring its doorbell by themselves"));
  const KernelRing ring(on_gpu<device::RingWay>(made->value().ring), cuda.copies);
  CHECK(ring.way.ring.doorbell != 0);
  device::Ticket ticket;
  for (unsigned round = 1; round < 200; ++round) {  // the notification is in host memory
    put(ours, counted(100, round));
    REQUIRE(ring.calls.put_notify(0, 0, 100, 4, round, ticket) == device::Status::ok);
    CHECK(right.wait_notify(4, 1, true, soon()).second == round);
    CHECK(get(theirs) == counted(100, round));
    REQUIRE(ring.calls.wait(ticket, ring.way.patience) == device::Status::ok);
  }
  CHECK(made->error().empty());
  right.close(soon());
  device::Status status = device::Status::ok;
  while (status == device::Status::ok) {
    status = ring.calls.notify(4, 1, ticket);
    if (status == device::Status::ok) status = ring.calls.wait(ticket, ring.way.patience);
  }
  CHECK(status == device::Status::failed);
  CHECK(contains(made->error(), "in error: "));
}

TEST_CASE_FIXTURE(Queues, "each ring may lie in the memory of the host or of the GPU") {
  using engine::RingPlace;
  const std::array places{RingPlace::automatic, RingPlace::host, RingPlace::gpu};
  for (const RingPlace sends : places) {
    for (const RingPlace completions : places) {
      const gda::DeviceQueue::Options wanted{.way = gda::WantedWay::direct,
                                             .places = {sends, completions}};
      const auto made = queue_to(theirs.remote(), wanted);
      const auto way = on_gpu<device::RingWay>(made->value().ring);
      CHECK((cuda.copies.at(way.ring.entries) != nullptr) == (sends == RingPlace::gpu));
      CHECK((cuda.copies.at(way.ring.completions) != nullptr) == (completions == RingPlace::gpu));
      const KernelRing ring(way, cuda.copies);
      device::Ticket ticket;
      for (unsigned round = 1; round < 50; ++round) {
        put(ours, counted(100, round));
        REQUIRE(ring.calls.put_notify(0, 0, 100, 4, round, ticket) == device::Status::ok);
        CHECK(right.wait_notify(4, 1, true, soon()).second == round);
        CHECK(get(theirs) == counted(100, round));
        REQUIRE(ring.calls.wait(ticket, ring.way.patience) == device::Status::ok);
      }
      CHECK(made->error().empty());
    }
  }
}

TEST_CASE_FIXTURE(Queues, "a ring on the GPU tells which entry was refused, too") {
  auto host = std::make_unique<Memory>(right.empty({{100}}, kByte));
  const auto made = queue_to(host->remote(), {.way = gda::WantedWay::direct,
                                              .places = {.sends = engine::RingPlace::gpu,
                                                         .completions = engine::RingPlace::gpu}});
  CHECK(contains(made->route().reason, "its send queue lies in the GPU's memory"));
  const KernelRing ring(on_gpu<device::RingWay>(made->value().ring), cuda.copies);
  host.reset();
  device::Ticket ticket;
  REQUIRE(ring.calls.put(0, 0, 100, ticket) == device::Status::ok);
  CHECK(ring.calls.wait(ticket, ring.way.patience) == device::Status::failed);
  CHECK(contains(made->error(), "IBV_WC_REM_ACCESS_ERR (syndrome 19"));
}

TEST_CASE_FIXTURE(Queues, "between data on a GPU and a notification in host memory stands a read") {
  const Memory host = right.empty({{100}}, kByte);
  const std::array<const Memory*, 2> targets{&theirs, &host};
  for (const Memory* target : targets) {
    const auto made = queue_to(target->remote(), {.way = gda::WantedWay::direct});
    const KernelRing ring(on_gpu<device::RingWay>(made->value().ring), cuda.copies);
    device::Ticket ticket;
    REQUIRE(ring.calls.put_notify(0, 0, 100, 4, 7, ticket) == device::Status::ok);
    CHECK(right.wait_notify(4, 1, true, soon()).second == 7);
    const auto* const blocks = reinterpret_cast<const device::mlx5::Block*>(ring.way.ring.entries);
    const auto opcode = [&](int i) { return device::mlx5::swapped(blocks[i].words[0]) & 0xff; };
    const auto flags = [&](int i) { return device::mlx5::swapped(blocks[i].words[2]); };
    CHECK(opcode(0) == device::mlx5::kWrite);
    const int note = target == &theirs ? 2 : 1;
    if (note == 2) CHECK(opcode(1) == device::mlx5::kRead);
    CHECK(opcode(note) == device::mlx5::kWrite);
    const unsigned order = note == 2 ? device::mlx5::kFence : device::mlx5::kStrongOrder;
    CHECK((flags(note) & (7u << 5)) == order);
  }
}

TEST_CASE_FIXTURE(Queues, "what a get brings is made visible where the GPU does not keep order") {
  const auto made = queue_to(behind, {.way = gda::WantedWay::direct});
  auto way = on_gpu<device::RingWay>(made->value().ring);
  CHECK(way.dumps == 0);  // this one does
  way.dumps = 1;
  const KernelRing ring(way, cuda.copies);
  put(theirs, counted(100, 3));
  device::Ticket ticket;
  REQUIRE(ring.calls.get(0, 0, 100, ticket) == device::Status::ok);
  REQUIRE(ring.calls.wait(ticket, ring.way.patience) == device::Status::ok);
  CHECK(get(ours) == counted(100, 3));
  const auto* const blocks = reinterpret_cast<const device::mlx5::Block*>(ring.way.ring.entries);
  CHECK((device::mlx5::swapped(blocks[0].words[0]) & 0xff) == device::mlx5::kRead);
  CHECK((device::mlx5::swapped(blocks[1].words[0]) & 0xff) == device::mlx5::kDump);
}

TEST_CASE_FIXTURE(Queues, "a queue pair in error says which entry was refused, and why") {
  auto host = std::make_unique<Memory>(right.empty({{100}}, kByte));
  const auto made = queue_to(host->remote(), {.way = gda::WantedWay::direct});
  const KernelRing ring(on_gpu<device::RingWay>(made->value().ring), cuda.copies);
  host.reset();
  device::Ticket ticket;
  REQUIRE(ring.calls.put(0, 0, 100, ticket) == device::Status::ok);
  CHECK(ring.calls.wait(ticket, ring.way.patience) == device::Status::failed);
  CHECK(contains(made->error(), "IBV_WC_REM_ACCESS_ERR (syndrome 19"));  // 0x13
}

TEST_CASE_FIXTURE(Queues, "nor does what a GPU is to copy behind a kernel hold up the proxy") {
  const Memory host = right.empty({{8}}, kByte);
  const auto made = queue_to(host.remote());
  const KernelRing ring(on_gpu<device::RingWay>(made->value().ring), cuda.copies);
  hang(true);
  const auto copying = write(*to_right, ours, behind);  // by p2p
  std::uint64_t old = 1;
  CHECK(ring.calls.fetch_add(0, 1, old) == device::Status::ok);
  CHECK(old == 0);
  const std::uint64_t value = 7;
  device::Ticket ticket;
  REQUIRE(ring.calls.put_value(0, &value, sizeof value, ticket) == device::Status::ok);
  CHECK(ring.calls.wait(ticket, ring.way.patience) == device::Status::ok);
  CHECK(!copying->done());
  hang(false);
  finish(copying);
}

TEST_CASE_FIXTURE(Queues, "a way that is asked for is not replaced by another") {
  const Memory host = right.empty({{100}}, kByte);
  CHECK_THROWS_AS(queue_to(host.remote(), {.way = gda::WantedWay::mapped}), RouteUnavailable);
}

}  // namespace
}  // namespace zerohop::testing
