// Recordings that begin and end while transfers do; what is in them: tests/unit/test_recording.py.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/recording.hpp"

namespace zerohop::testing {
namespace {

using trace::Event;
using trace::Recording;

struct Recorded {
  std::string text;  // "write 100 B right host soft0"
  std::string failure;
  Event::State state;
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
      found.push_back({text, ended ? std::string(event.failure.view()) : "", state});
    }
    return found;
  }

 private:
  std::shared_ptr<Recording> recording_;
};

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
