// Recordings: the events of transfers and notifications, and what happens when it is full.
#include <algorithm>
#include <thread>

#include "base/recording.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

using trace::Event;
using trace::Recording;

struct Recorded {
  std::string text;  // "write 100 B right host soft0"
  std::string failure;
  Event::State state;
  std::uint64_t lasted;
  std::uint32_t slot, value;
};

// Records during its lifetime; one at a time.
class Recorder {
 public:
  explicit Recorder(std::size_t most = 100) : recording_(std::make_shared<Recording>(most)) {
    REQUIRE(trace::set_recording(recording_) == nullptr);
  }
  ~Recorder() { trace::set_recording(nullptr); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  std::uint64_t dropped() const { return recording_->dropped(); }
  std::vector<Recorded> all() const {
    std::vector<Recorded> found;
    for (std::size_t i = 0; i < recording_->claimed(); ++i) {
      const Event& event = recording_->event(i);
      const Event::State state = event.state.load(std::memory_order_acquire);
      if (state == Event::State::withdrawn) continue;
      std::string text(event.what);
      if (event.peer.view() != "") {
        text.append(" ").append(std::to_string(event.nbytes)).append(" B");
        for (const auto word : {event.peer.view(), event.route.view(), event.device.view()}) {
          text.append(" ").append(word);
        }
      }
      const bool ended = state == Event::State::ended;
      found.push_back({text, ended ? std::string(event.failure.view()) : "", state,
                       ended ? event.end - event.begin : 0, ended ? event.slot : 0,
                       ended ? event.value : 0});
    }
    return found;
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> found;
    for (const Recorded& each : all()) found.push_back(each.text);
    return found;
  }

 private:
  std::shared_ptr<Recording> recording_;
};

TEST_CASE("transfers and notifications that were taken, and nothing for a look in vain") {
  Couple couple;
  const Memory near = StagedCouple::host_array(couple.left, {20000});
  const Memory far = StagedCouple::host_array(couple.right, {20000});
  finish(write(*couple.to_right, near, far.remote()));  // before: not recorded
  const Recorder recorder;
  finish(write(*couple.to_right, near, far.remote(), Notification{3, 9}));
  CHECK(couple.right.wait_notify(3, 1, true, soon()).second == 9);
  CHECK_THROWS_AS(couple.right.wait_notify(3, 1, true, Deadline::after(Deadline::Seconds(0))),
                  TransferTimeout);
  CHECK(couple.right.reset_notify(3) == 0);
  finish(couple.to_right->notify({4, 8}));
  CHECK(couple.right.wait_notify(4, 1, false, soon()).second == 8);
  CHECK(couple.right.reset_notify(4) == 8);
  const std::string device = couple.left.address().device;
  CHECK(recorder.texts() ==
        std::vector<std::string>{"write 20000 B right host " + device, "wait_notify",
                                 "notify 0 B right host " + device, "wait_notify", "reset_notify"});
  const auto all = recorder.all();
  CHECK(std::ranges::all_of(all, [](const Recorded& each) {
    return each.state == Event::State::ended && each.failure.empty();
  }));
  CHECK(all[0].lasted > 0);
  CHECK(all[1].slot == 3);
  CHECK(all[1].value == 9);
  CHECK(all[4].slot == 4);
  CHECK(recorder.dropped() == 0);
}

TEST_CASE_FIXTURE(GpuCouple, "an operation in progress has begun and not ended") {
  const Memory near = array(left, {5000});
  const Memory far = array(right, {5000});
  const Recorder recorder;
  hang(true);
  const auto transfer = write(*to_right, near, far.remote());
  REQUIRE(recorder.all().size() == 1);
  CHECK(recorder.all()[0].state == Event::State::begun);
  hang(false);
  finish(transfer);
  CHECK(recorder.texts() == std::vector<std::string>{"write 5000 B right p2p cuda:0"});
  CHECK(recorder.all()[0].state == Event::State::ended);
}

TEST_CASE_FIXTURE(StagedCouple, "a transfer that fails says why, as far as there is room") {
  const Memory near = gpu_array(left, {10000});
  RemoteMemory guessed = gpu_array(right, {10000}).remote();
  guessed.staged_key += 1;
  const Recorder recorder;
  const std::string error = error_of(write(*to_right, near, guessed));
  REQUIRE(recorder.all().size() == 1);
  CHECK(recorder.all()[0].failure == error.substr(0, 120));
}

TEST_CASE("what has no room is counted, and nothing else happens to it") {
  Couple couple;
  const Memory near = StagedCouple::host_array(couple.left, {100});
  const Memory far = StagedCouple::host_array(couple.right, {100});
  const Recorder recorder(2);
  for (int i = 0; i < 5; ++i) finish(write(*couple.to_right, near, far.remote()));
  CHECK(recorder.all().size() == 2);
  CHECK(recorder.dropped() == 3);
}

TEST_CASE("a transfer outlives its recording, and does not end in the next one") {
  trace::Entry entry;
  {
    const Recorder first;
    entry.begin({.what = "write", .peer = "x"});
    CHECK(entry.begun());
  }
  const Recorder second;
  entry.end();
  CHECK(second.all().empty());
}

TEST_CASE("recordings begin and end while transfers do") {
  std::atomic<bool> stop{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&stop] {
      while (!stop) {
        trace::Entry entry;
        entry.begin({.what = "read", .nbytes = 7, .peer = "somebody", .route = "p2p"});
        entry.end("because");
      }
    });
  }
  std::size_t seen = 0;
  for (int i = 0; i < 200 || seen == 0; ++i) {
    const Recorder recorder(50);
    while (recorder.dropped() == 0) std::this_thread::yield();
    for (const Recorded& each : recorder.all()) {
      CHECK(each.text == "read 7 B somebody p2p ");
      if (each.state == Event::State::ended) CHECK(each.failure == "because");
      ++seen;
    }
  }
  stop = true;
}

}  // namespace
}  // namespace zerohop::testing
