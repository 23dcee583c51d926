// What can be observed of transfers: counters of each route, and ranges of a trace, from before the
// first byte to after the last.
#include <algorithm>
#include <functional>
#include <mutex>

#include "base/trace.hpp"
#include "gpu_couple.hpp"
#include "process.hpp"

namespace zerohop::testing {
namespace {

using engine::Operation;
using engine::RouteStats;

// --- counters: begun, in progress, ended with an error ---

struct CountedCouple : GpuCouple {
  explicit CountedCouple(bool p2p)
      : GpuCouple(p2p ? near("left") : options("left"), p2p ? near("right") : options("right")) {}

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

TEST_CASE(
    "p2p of GPUs is counted apart from p2p of host memory, and running copies from done ones") {
  CountedCouple pair(/*p2p=*/true);
  const auto [ours, theirs] = pair.arrays({5000});
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

  const auto [host, far] = pair.host_arrays({300});
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
  CountedCouple pair(/*p2p=*/true);
  const auto [ours, theirs] = pair.arrays({1000});
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
  CountedCouple pair(/*p2p=*/false);
  const auto [host, far] = pair.host_arrays({800});
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
  for (const auto operation :
       {Operation::write, Operation::read, Operation::atomic, Operation::send, Operation::recv}) {
    CHECK(count(row, operation) == 1);
    CHECK(latency(row, operation).count == 1);
    CHECK(latency(row, operation).sum > 0);
  }
  CHECK(row.notifications == 1);
  CHECK(row.bytes_out == 1600);
  CHECK(row.bytes_in == 1600);
  CHECK(row.under_way == 0);
  CHECK(row.failures == 0);

  const Memory gpu = pair.array(pair.left, {400});
  finish(write(*pair.to_right, gpu, far.slice(std::vector<Index>{Slice{0, 400}}).remote()));
  const RouteStats& staged = pair.row("staged", pair.left.address().device.c_str());
  CHECK(count(staged, Operation::write) == 1);
  CHECK(staged.bytes_out == 400);
  CHECK(staged.under_way == 0);
}

TEST_CASE("a lost peer fails what is in progress, once each") {
  CountedCouple pair(/*p2p=*/false);
  const Memory host = host_array(pair.left, {800});
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
  CountedCouple pair(/*p2p=*/true);
  const auto [host, far] = pair.host_arrays({8});
  const RouteStats& cpu = pair.row("p2p", "cpu");
  for (int i = 0; i < 1000; ++i) finish(write(*pair.to_right, host, far.remote()));
  CHECK(latency(cpu, Operation::write).count == 1000);
  for (int i = 0; i < 16000; ++i) finish(write(*pair.to_right, host, far.remote()));
  CHECK(count(cpu, Operation::write) == 17000);
  const auto counted = static_cast<double>(latency(cpu, Operation::write).count);
  CHECK(counted > 0.97 * 17000);
  CHECK(counted < 1.03 * 17000);
}

// --- ranges ---

struct Seen {
  std::string name;
  std::uint64_t payload;
  int ends;
};

// Listens during its lifetime; one at a time.
class Listener {
 public:
  Listener() {
    reported_.clear();
    trace::listen(&kTool);
  }
  ~Listener() {
    trace::listen(nullptr);
    on_begin = on_end = nullptr;
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  static std::vector<Seen> reported() {
    const std::lock_guard lock(mutex_);
    return reported_;
  }
  static std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const Seen& range : reported()) all.push_back(range.name);
    return all;
  }
  static bool all_ended() {
    const auto ended = [](const Seen& range) { return range.ends == 1; };
    return std::ranges::all_of(reported(), ended);
  }
  static std::uint64_t begin(const char* name, std::uint64_t payload) noexcept {
    if (on_begin) on_begin();
    const std::lock_guard lock(mutex_);
    reported_.push_back({name, payload, 0});
    return reported_.size() - 1;
  }
  static void end(std::uint64_t range) noexcept {
    if (on_end) on_end();
    const std::lock_guard lock(mutex_);
    ++reported_.at(range).ends;
  }

  static constexpr trace::Tool kTool{.begin = begin, .end = end};
  static inline std::function<void()> on_begin, on_end;

 private:
  static inline std::mutex mutex_;
  static inline std::vector<Seen> reported_;
};

TEST_CASE("a range shows operation, bytes, peer and route") {
  Couple couple;
  const auto [near, far] = couple.host_arrays({20000});
  const Memory word = couple.right.empty(std::vector<std::int64_t>{1}, DType::parse("uint64"));
  Peer& to_right = *couple.to_right;
  const Listener listener;
  finish(write(to_right, near, far.remote(), Notification{3, 1}));
  CHECK(couple.right.wait_notify(3, 1, true, soon()).second == 1);
  finish(read(to_right, near, far.remote()));
  finish(to_right.fetch_add(word.remote(), 1));
  const auto received = couple.to_left->receive(far, 1);
  const auto sent = to_right.send(near, 1);
  finish(received);
  finish(sent);
  finish(to_right.notify({4, 1}));
  CHECK(couple.right.wait_notify(2, 8, true, soon()).first == 4);
  const std::vector<std::string> expected{
      "write 20000 B to right by host",  "wait_notify slot 3",
      "read 20000 B from right by host", "atomic 8 B at right by host",
      "recv 20000 B from left by host",  "send 20000 B to right by host",
      "notify 0 B to right by host",     "wait_notify slots 2 to 9"};
  CHECK(Listener::names() == expected);
  CHECK(Listener::reported().front().payload == 20000);
  CHECK(Listener::all_ended());
}

TEST_CASE("a range begins before the first byte and ends behind the last") {
  for (const bool p2p : {false, true}) {
    for (const std::int64_t nbytes : {100, 3 << 20}) {  // within the call, and on another thread
      engine::Endpoint left(p2p ? testing::near("left") : options("left"));
      engine::Endpoint right(p2p ? testing::near("right") : options("right"));
      const auto to_right = left.connect(right.address().to_bytes(), soon());
      const auto to_left = right.accept(soon());
      const Memory near = host_array(left, {nbytes});
      const Memory far = host_array(right, {nbytes});
      const auto* target = reinterpret_cast<const std::byte*>(far.layout().address);
      const auto* source = reinterpret_cast<std::byte*>(near.layout().address);
      std::fill_n(reinterpret_cast<std::byte*>(near.layout().address), nbytes, std::byte{7});
      bool placed_before = true, placed_after = false;
      const Listener listener;
      Listener::on_begin = [&] { placed_before = target[0] == source[0]; };
      Listener::on_end = [&] { placed_after = std::equal(target, target + nbytes, source); };
      const auto transfer = write(*to_right, near, far.remote());
      REQUIRE(transfer->wait(soon()));
      CHECK(Listener::names() ==
            std::vector<std::string>{"write " + std::to_string(nbytes) + " B to right by " +
                                     (p2p ? "p2p" : "host")});
      CHECK(Listener::all_ended());
      CHECK(!placed_before);
      CHECK(placed_after);
    }
  }
}

TEST_CASE_FIXTURE(GpuCouple, "the range of a copy by GPUs lasts as long as the copy") {
  const auto [near, far] = arrays({5000});
  const Listener listener;
  hang(true);
  const auto transfer = write(*to_right, near, far.remote(), Notification{1, 1});
  CHECK(Listener::names() == std::vector<std::string>{"write 5000 B to right by p2p"});
  CHECK(Listener::reported().front().ends == 0);
  hang(false);
  finish(transfer);
  CHECK(Listener::all_ended());
}

TEST_CASE_FIXTURE(StagedCouple, "the range of a transfer that fails ends as well, and only once") {
  const Memory near = array(left, {10000});
  RemoteMemory guessed = array(right, {10000}).remote();
  guessed.staged_key += 1;
  const Listener listener;
  const auto refused = write(*to_right, near, guessed, Notification{1, 1});
  CHECK(contains(error_of(refused), "REM_ACCESS_ERR"));
  CHECK(Listener::names() == std::vector<std::string>{"write 10000 B to right by staged"});
  CHECK(Listener::all_ended());
}

TEST_CASE("a range that its parent began is not ended by a child of fork()") {
  const Listener listener;
  trace::Range range;
  range.begin(Listener::kTool, "the parent's", 0);
  CHECK(in_child([&] {
          range.end();
          return Listener::reported().front().ends;
        }) == 0);
  range.end();
  range.end();
  CHECK(Listener::reported().front().ends == 1);
}

TEST_CASE("a tool that stopped listening gets nothing") {
  trace::Range range;
  {
    const Listener listener;
    range.begin(*trace::tool(), "longer than the tool", 0);
  }
  range.end();
  CHECK(Listener::reported().front().ends == 0);
  CHECK(trace::tool() == nullptr);
}

}  // namespace
}  // namespace zerohop::testing
