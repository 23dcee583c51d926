// Counters of each route: begun, in progress, ended with an error.
#include <algorithm>
#include <future>

#include "base/error.hpp"
#include "staged_couple.hpp"

namespace zerohop::testing {
namespace {

using engine::Operation;
using engine::RouteStats;

engine::EndpointOptions near(const char* name, const FakeCuda& cuda, bool p2p) {
  engine::EndpointOptions chosen = options(name);
  chosen.p2p = p2p;
  chosen.cuda = cuda.table();
  return chosen;
}

struct Couple {
  FakeCuda cuda;
  AllGivenBack given_back{cuda};
  engine::Endpoint left;
  engine::Endpoint right;
  std::shared_ptr<Peer> to_right;
  std::shared_ptr<Peer> to_left;

  explicit Couple(bool p2p) : left(near("left", cuda, p2p)), right(near("right", cuda, p2p)) {
    to_right = left.connect(right.address().to_bytes(), soon());
    to_left = right.accept(soon());
  }
  Memory on_gpu(engine::Endpoint& endpoint, std::int64_t nbytes) {
    Layout layout = Layout::contiguous(0, kByte, std::vector<std::int64_t>{nbytes});
    layout.address = cuda.add_bytes(layout.nbytes());
    return endpoint.register_memory(layout, nullptr, {.writable = true, .device = "cuda:0"});
  }
  static Memory on_host(engine::Endpoint& endpoint, std::int64_t nbytes) {
    return endpoint.empty(std::vector<std::int64_t>{nbytes}, kByte);
  }
  const RouteStats& row(const char* kind, const char* device) const {
    const auto rows = to_right->route_stats();
    const auto found = std::ranges::find_if(
        rows, [&](const auto& row) { return row.first == engine::RouteBook::Name{kind, device}; });
    REQUIRE(found != rows.end());
    return *found->second;  // kept by the Peer
  }
};

std::uint64_t count(const RouteStats& stats, Operation operation) {
  return stats.operations[static_cast<std::size_t>(operation)];
}

Histogram::Reading latency(const RouteStats& stats, Operation operation) {
  return stats.latencies[static_cast<std::size_t>(operation)].read();
}

void finish(const engine::TransferPtr& transfer) {
  REQUIRE(transfer->wait(soon()));
  (void)transfer->result();
}

TEST_CASE(
    "p2p of GPUs is counted apart from p2p of host memory, and running copies from done ones") {
  Couple pair(/*p2p=*/true);
  const Memory ours = pair.on_gpu(pair.left, 5000);
  const Memory theirs = pair.on_gpu(pair.right, 5000);
  pair.cuda.copies.hangs = true;
  const auto first = write(*pair.to_right, ours, theirs.remote(), Notification{1, 1});
  const auto second = read(*pair.to_right, ours, theirs.remote());
  const RouteStats& gpu = pair.row("p2p", "cuda:0");
  CHECK(gpu.under_way == 2);
  CHECK(latency(gpu, Operation::write).count == 0);
  const auto waited = std::chrono::milliseconds(20);
  for (const auto begin = Deadline::Clock::now(); Deadline::Clock::now() - begin < waited;) {
    first->poll();
  }
  pair.cuda.copies.hangs = false;
  finish(first);
  finish(second);
  CHECK(gpu.under_way == 0);
  CHECK(count(gpu, Operation::write) == 1);
  CHECK(count(gpu, Operation::read) == 1);
  CHECK(latency(gpu, Operation::write).count == 1);
  CHECK(latency(gpu, Operation::write).sum >= std::chrono::nanoseconds(waited).count() * 0.99);
  CHECK(latency(gpu, Operation::read).count == 1);
  CHECK(gpu.bytes_out == 5000);
  CHECK(gpu.bytes_in == 5000);
  CHECK(gpu.notifications == 1);
  CHECK(gpu.failures == 0);
  const auto mapped = pair.to_right->mapped();
  REQUIRE(mapped.size() == 1);
  CHECK(mapped.at(0).chunks == 2);  // and the mirrors for the peer's streams
  CHECK(mapped.at(0).nbytes == 5000 + (2 << 20));
  const RouteStats& cpu = pair.row("p2p", "cpu");
  CHECK(count(cpu, Operation::write) == 0);

  const Memory host = Couple::on_host(pair.left, 300);
  const Memory far = Couple::on_host(pair.right, 300);
  finish(write(*pair.to_right, host, far.remote(), Notification{1, 2}));
  finish(pair.to_right->notify({1, 3}));
  CHECK(count(cpu, Operation::write) == 1);
  CHECK(count(cpu, Operation::notify) == 1);
  CHECK(latency(cpu, Operation::write).count == 1);
  CHECK(latency(cpu, Operation::notify).count == 1);
  CHECK(cpu.notifications == 2);
  CHECK(cpu.bytes_out == 300);
  CHECK(cpu.under_way == 0);
  CHECK(gpu.bytes_out == 5000);
}

TEST_CASE("a copy that fails, and one that is refused, are counted as failures and as no more") {
  Couple pair(/*p2p=*/true);
  const Memory ours = pair.on_gpu(pair.left, 1000);
  const Memory theirs = pair.on_gpu(pair.right, 1000);
  finish(write(*pair.to_right, ours, theirs.remote()));
  const RouteStats& gpu = pair.row("p2p", "cuda:0");
  pair.cuda.error = 700;
  pair.cuda.copies.hangs = true;
  const auto failing = write(*pair.to_right, ours, theirs.remote());
  pair.cuda.fail_at = pair.cuda.calls + 2;  // the context, the query
  REQUIRE(failing->wait(soon()));
  CHECK(failing->failed());
  CHECK(gpu.failures == 1);
  pair.cuda.copies.hangs = false;
  pair.cuda.fail_at = pair.cuda.calls + 3;
  CHECK_THROWS_AS(write(*pair.to_right, ours, theirs.remote()), CudaError);
  pair.cuda.fail_at = 0;
  finish(write(*pair.to_right, ours, theirs.remote()));  // it ends after what was begun of that one
  CHECK(gpu.under_way == 0);
  CHECK(gpu.failures == 2);
  CHECK(count(gpu, Operation::write) == 4);
  CHECK(latency(gpu, Operation::write).count == 2);
}

TEST_CASE("devices: every operation in the row of its route") {
  Couple pair(/*p2p=*/false);
  const Memory host = Couple::on_host(pair.left, 800);
  const Memory far = Couple::on_host(pair.right, 800);
  finish(write(*pair.to_right, host, far.remote(), Notification{1, 1}));
  finish(read(*pair.to_right, host, far.remote()));
  const Memory word = pair.right.empty(std::vector<std::int64_t>{1}, DType{kDTypeInt, 64, 1});
  finish(pair.to_right->fetch_add(word.remote(), 1));
  const auto received = pair.to_left->receive(far, 7);
  const auto awaited = pair.to_right->receive(host, 8);
  const RouteStats& row = pair.row("host", pair.left.address().device.c_str());
  CHECK(row.under_way == 1);
  finish(pair.to_right->send(host, 7));
  finish(received);
  finish(pair.to_left->send(far, 8));
  finish(awaited);
  CHECK(count(row, Operation::write) == 1);
  CHECK(count(row, Operation::read) == 1);
  CHECK(count(row, Operation::atomic) == 1);
  CHECK(count(row, Operation::send) == 1);
  CHECK(count(row, Operation::recv) == 1);
  for (const auto operation :
       {Operation::write, Operation::read, Operation::atomic, Operation::send, Operation::recv}) {
    CHECK(latency(row, operation).count == 1);
    CHECK(latency(row, operation).sum > 0);
  }
  CHECK(row.notifications == 1);
  CHECK(row.bytes_out == 1600);
  CHECK(row.bytes_in == 1600);
  CHECK(row.under_way == 0);
  CHECK(row.failures == 0);

  const Memory gpu = pair.on_gpu(pair.left, 400);
  finish(write(*pair.to_right, gpu, far.slice(std::vector<Index>{Slice{0, 400}}).remote()));
  const RouteStats& staged = pair.row("staged", pair.left.address().device.c_str());
  CHECK(count(staged, Operation::write) == 1);
  CHECK(staged.bytes_out == 400);
  CHECK(staged.under_way == 0);
}

TEST_CASE("a lost peer fails what is in progress, once each") {
  Couple pair(/*p2p=*/false);
  const Memory host = Couple::on_host(pair.left, 800);
  const auto first = pair.to_right->receive(host, 1);
  const auto second = pair.to_right->receive(host, 2);
  const RouteStats& row = pair.row("host", pair.left.address().device.c_str());
  CHECK(row.under_way == 2);
  pair.to_left->close(soon());
  REQUIRE(first->wait(soon()));
  REQUIRE(second->wait(soon()));
  CHECK(row.failures == 2);
  CHECK(row.under_way == 0);
  CHECK(row.bytes_in == 0);
}

TEST_CASE("short copies by the CPU: each of the first is measured, later some for all") {
  Couple pair(/*p2p=*/true);
  const Memory host = Couple::on_host(pair.left, 8);
  const Memory far = Couple::on_host(pair.right, 8);
  const RouteStats& cpu = pair.row("p2p", "cpu");
  for (int i = 0; i < 1000; ++i) finish(write(*pair.to_right, host, far.remote()));
  CHECK(latency(cpu, Operation::write).count == 1000);
  for (int i = 0; i < 16000; ++i) finish(write(*pair.to_right, host, far.remote()));
  CHECK(count(cpu, Operation::write) == 17000);
  const auto counted = static_cast<double>(latency(cpu, Operation::write).count);
  CHECK(counted > 0.97 * 17000);
  CHECK(counted < 1.03 * 17000);
}

}  // namespace
}  // namespace zerohop::testing
