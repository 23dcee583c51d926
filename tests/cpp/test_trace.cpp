// Time ranges: one per transfer, from before its first byte to after its last.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <mutex>

#include "base/error.hpp"
#include "base/trace.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

struct Told {
  std::string name;
  std::uint64_t payload;
  int ends;
};

// Listens during its lifetime; one at a time.
class Listener {
 public:
  Listener() {
    told_.clear();
    trace::listen(&kTool);
  }
  ~Listener() {
    trace::listen(nullptr);
    on_begin = on_end = nullptr;
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  static std::vector<Told> told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  static std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const Told& range : told()) all.push_back(range.name);
    return all;
  }
  static bool all_ended() {
    const auto ended = [](const Told& range) { return range.ends == 1; };
    return std::ranges::all_of(told(), ended);
  }
  static std::uint64_t begin(const char* name, std::uint64_t payload) noexcept {
    if (on_begin) on_begin();
    const std::lock_guard lock(mutex_);
    told_.push_back({name, payload, 0});
    return told_.size() - 1;
  }
  static void end(std::uint64_t range) noexcept {
    if (on_end) on_end();
    const std::lock_guard lock(mutex_);
    ++told_.at(range).ends;
  }

  static constexpr trace::Tool kTool{.begin = begin, .end = end};
  static inline std::function<void()> on_begin, on_end;

 private:
  static inline std::mutex mutex_;
  static inline std::vector<Told> told_;
};

TEST_CASE("a range shows operation, bytes, peer and route") {
  Couple couple;
  const Memory near = StagedCouple::host_array(couple.left, {20000});
  const Memory far = StagedCouple::host_array(couple.right, {20000});
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
  CHECK(Listener::told().front().payload == 20000);
  CHECK(Listener::all_ended());
}

TEST_CASE("a range begins before the first byte and ends behind the last") {
  for (const bool p2p : {false, true}) {
    for (const std::int64_t nbytes : {100, 3 << 20}) {  // within the call, and on another thread
      engine::EndpointOptions chosen = options("left");
      chosen.p2p = p2p;
      engine::Endpoint left(chosen);
      chosen.name = "right";
      engine::Endpoint right(chosen);
      const auto to_right = left.connect(right.address().to_bytes(), soon());
      const auto to_left = right.accept(soon());
      const Memory near = StagedCouple::host_array(left, {nbytes});
      const Memory far = StagedCouple::host_array(right, {nbytes});
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
  const Memory near = array(left, {5000});
  const Memory far = array(right, {5000});
  const Listener listener;
  hang(true);
  const auto transfer = write(*to_right, near, far.remote(), Notification{1, 1});
  CHECK(Listener::names() == std::vector<std::string>{"write 5000 B to right by p2p"});
  CHECK(Listener::told().front().ends == 0);
  hang(false);
  finish(transfer);
  CHECK(Listener::all_ended());
}

TEST_CASE_FIXTURE(StagedCouple, "the range of a transfer that fails ends as well, and only once") {
  const Memory near = gpu_array(left, {10000});
  RemoteMemory guessed = gpu_array(right, {10000}).remote();
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
  const pid_t child = ::fork();
  if (child == 0) {
    range.end();
    ::_exit(Listener::told().front().ends);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  range.end();
  range.end();
  CHECK(Listener::told().front().ends == 1);
}

TEST_CASE("a tool that stopped listening gets nothing") {
  trace::Range range;
  {
    const Listener listener;
    range.begin(*trace::tool(), "longer than the tool", 0);
  }
  range.end();
  CHECK(Listener::told().front().ends == 0);
  CHECK(trace::tool() == nullptr);
}

}  // namespace
}  // namespace zerohop::testing
