// Durations, recordings and times of transfers, and counters that outlive their Peer.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/histogram.hpp"
#include "base/recording.hpp"
#include "base/ticks.hpp"
#include "engine/stats/route_books.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

using engine::Operation;
using engine::RouteBook;
using engine::RouteBooks;
using engine::Times;
using trace::Event;
using trace::Recording;

// --- durations: the bucket in which they are counted, and the values read back ---

TEST_CASE("every duration is in the first bucket whose bound is not below it") {
  std::vector<std::uint64_t> durations{0, 1, 63, 64, 65, 96, 97, 128, 129, UINT64_MAX};
  for (std::size_t i = 0; i + 1 < Histogram::kBuckets; ++i) {
    durations.push_back(Histogram::bound(i));
    durations.push_back(Histogram::bound(i) + 1);
  }
  std::mt19937_64 random(7);
  for (int i = 0; i < 10000; ++i) durations.push_back(random() >> (random() % 64));
  for (const std::uint64_t duration : durations) {
    const std::size_t bucket = Histogram::bucket(duration);
    REQUIRE(bucket < Histogram::kBuckets);
    CHECK(duration <= Histogram::bound(bucket));
    if (bucket > 0) CHECK(duration > Histogram::bound(bucket - 1));
  }
}

TEST_CASE("bounds lie at most one half apart") {
  for (std::size_t i = 1; i + 1 < Histogram::kBuckets; ++i) {
    CHECK(Histogram::bound(i) > Histogram::bound(i - 1));
    CHECK(2 * Histogram::bound(i) <= 3 * Histogram::bound(i - 1));
  }
  CHECK(Histogram::bound(Histogram::kBuckets - 2) == std::uint64_t{1} << 36);
}

TEST_CASE("quantiles lie in the bucket of the duration that has that rank") {
  Histogram histogram;
  CHECK(histogram.read().quantile(0.5) == 0);
  for (std::uint64_t i = 1; i <= 1000; ++i) histogram.add(i * 1000);
  const Histogram::Reading reading = histogram.read();
  CHECK(reading.count == 1000);
  CHECK(reading.sum == 1000 * 500500);
  for (const double share : {0.01, 0.5, 0.9, 0.99}) {
    const auto exact = static_cast<std::uint64_t>(share * 1'000'000);
    const std::size_t bucket = Histogram::bucket(exact);
    CHECK(reading.quantile(share) <= static_cast<double>(Histogram::bound(bucket)));
    CHECK(reading.quantile(share) >= static_cast<double>(Histogram::bound(bucket - 1)));
  }
  Histogram endless;
  endless.add(UINT64_MAX);
  CHECK(endless.read().quantile(0.5) == std::pow(2, 36));
}

TEST_CASE("what threads add at once is all there, in a sum of two as well") {
  Histogram histogram;
  std::vector<std::jthread> threads;
  for (std::uint64_t duration : {50, 5000, 500000}) {
    threads.emplace_back([&histogram, duration] {
      for (int i = 0; i < 10000; ++i) histogram.add(duration);
    });
  }
  threads.clear();
  Histogram both;
  both.add(100);
  both.add(histogram);
  const Histogram::Reading reading = both.read();
  CHECK(reading.count == 30001);
  CHECK(reading.sum == 10000 * std::uint64_t{505050} + 100);
  CHECK(reading.counts[Histogram::bucket(5000)] == 10000);
}

TEST_CASE("ticks last as long as the time of the steady clock") {
  ticks::open();
  using Clock = std::chrono::steady_clock;
  const auto outer_begin = Clock::now();
  const std::uint64_t begin = ticks::now();
  const auto inner_begin = Clock::now();
  while (Clock::now() - inner_begin < std::chrono::milliseconds(20)) {
  }
  const auto inner = Clock::now() - inner_begin;
  const std::uint64_t end = ticks::now();
  const auto outer = Clock::now() - outer_begin;
  const auto measured = static_cast<double>(ticks::nanoseconds(begin, end));
  CHECK(measured >= 0.99 * static_cast<double>(inner.count()));
  CHECK(measured <= 1.01 * static_cast<double>(outer.count()));
  CHECK(ticks::nanoseconds(end, begin) == 0);
}

// --- recordings that begin and end while transfers do; what is in them:
// tests/unit/test_recording.py ---

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

// --- counters of a Peer outlive it ---

const RouteBook::Name kHost{"host", "soft0"};

// A Peer that wrote once, and may have left something in progress.
void session(RouteBooks& books, const std::string& name, int under_way = 0) {
  const auto book = books.open();
  books.connected(book, name);
  const auto stats = book->of(kHost.first, kHost.second);
  stats->begin(Operation::write, 10);
  stats->end(Operation::write, 1000);
  stats->under_way += under_way;
  books.ended(book, "it left");
}

std::uint64_t writes(const RouteBooks::Reading& reading) {
  const auto found = reading.sums.find(kHost);
  return found == reading.sums.end() ? 0 : found->second->operations[0].load();
}

TEST_CASE("a peer counts while it is there and when it is gone, and not twice") {
  RouteBooks books;
  const auto book = books.open();
  CHECK(books.read().connections.empty());  // not connected yet
  books.connected(book, "one");
  book->of(kHost.first, kHost.second)->begin(Operation::write, 10);
  auto reading = books.read();
  REQUIRE(reading.connections.size() == 1);
  CHECK(reading.connections[0].peer == "one");
  CHECK(!reading.connections[0].ended);
  CHECK(writes(reading) == 1);

  books.ended(book, "its network was cut");
  books.ended(book, "it was closed");  // the second caller changes nothing
  reading = books.read();
  REQUIRE(reading.connections.size() == 1);
  CHECK(reading.connections[0].ended == "its network was cut");
  CHECK(writes(reading) == 1);
}

TEST_CASE("of a peer that was never connected nothing stays") {
  RouteBooks books;
  books.ended(books.open(), "it did not answer");
  books.open();  // and this one is gone at once
  CHECK(books.read().connections.empty());
  CHECK(books.read().sums.empty());
}

TEST_CASE("of many that are gone the last are listed, and all are counted") {
  constexpr std::size_t kVisits = RouteBooks::kEndedKept + 100;
  RouteBooks books;
  for (std::size_t i = 0; i < kVisits; ++i) session(books, "client " + std::to_string(i));
  const auto reading = books.read();
  CHECK(reading.connections.size() == RouteBooks::kEndedKept);
  CHECK(reading.connections.front().peer == "client 100");
  CHECK(reading.connections.back().peer == "client " + std::to_string(kVisits - 1));
  CHECK(writes(reading) == kVisits);
  CHECK(reading.sums.at(kHost)->bytes_out == 10 * kVisits);
  CHECK(reading.sums.at(kHost)->latencies[0].read().count == kVisits);
}

TEST_CASE("what is counted by a name does not fall when that peer comes and goes") {
  RouteBooks books;
  for (std::size_t i = 1; i <= 2 * RouteBooks::kEndedKept; ++i) {
    session(books, "client");
    const auto reading = books.read();
    REQUIRE(reading.connections.size() == 1);
    CHECK(reading.connections[0].sums.at(kHost)->bytes_out == 10 * i);
    CHECK(writes(reading) == i);
  }
}

TEST_CASE("what would end unseen is no longer in progress") {
  RouteBooks books;
  for (std::size_t i = 0; i <= RouteBooks::kEndedKept; ++i) {
    session(books, "client " + std::to_string(i), 1);
  }
  CHECK(books.read().sums.at(kHost)->under_way == RouteBooks::kEndedKept);
  session(books, "client 5", 1);  // again: the one before can no longer end
  CHECK(books.read().sums.at(kHost)->under_way == RouteBooks::kEndedKept);
}

// --- when a Transfer was requested, began to move and ended: recorded only on request ---

// For its lifetime.
struct Keeping {
  Keeping() { Times::keep(true); }
  ~Keeping() { Times::keep(false); }
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;
};

// All present, in order, for a finished transfer.
void check_all(const TransferPtr& transfer) {
  finish(transfer);
  const Times& times = transfer->times();
  REQUIRE(times.asked());
  REQUIRE(times.begun());
  REQUIRE(times.ended());
  CHECK(*times.asked() <= *times.begun());
  CHECK(*times.begun() <= *times.ended());
}

TEST_CASE("times are kept of the transfers that begin while that is asked for") {
  Couple couple;
  const auto [near, far] = couple.host_arrays({20000});
  const auto before = write(*couple.to_right, near, far.remote());
  {
    const Keeping keeping;
    finish(before);
    check_all(write(*couple.to_right, near, far.remote(), Notification{3, 1}));
    check_all(couple.to_right->notify({4, 1}));
  }
  const auto after = read(*couple.to_right, near, far.remote());
  finish(after);
  for (const auto& transfer : {before, after}) {
    CHECK(!transfer->times().asked());
    CHECK(!transfer->times().begun());
    CHECK(!transfer->times().ended());
  }
}

TEST_CASE("what waits for the other side has not begun") {
  Couple couple;
  const auto [near, far] = couple.host_arrays({20000});
  const Keeping keeping;
  const auto received = couple.to_left->receive(far, 1);
  CHECK(received->times().asked());
  CHECK(!received->times().begun());
  CHECK(!received->times().ended());
  const auto sent = couple.to_right->send(near, 1);
  check_all(received);
  check_all(sent);
  CHECK(*received->times().asked() <= *sent->times().asked());
  CHECK(*sent->times().asked() <= *received->times().begun());
}

TEST_CASE("what fails has ended, too") {
  Couple couple;
  const Memory far = host_array(couple.right, {20000});
  const Keeping keeping;
  const auto received = couple.to_left->receive(far, 1);
  couple.left.close(soon());
  REQUIRE(received->wait(soon()));
  CHECK(received->failed());
  CHECK(!received->times().begun());
  REQUIRE(received->times().ended());
  CHECK(*received->times().asked() <= *received->times().ended());
}

TEST_CASE("copies of GPUs begin when the GPU is given them, and end when it has made them") {
  GpuCouple pair;
  const auto [ours, theirs] = pair.arrays({5000});
  const Keeping keeping;
  pair.hang(true);
  const auto copy = write(*pair.to_right, ours, theirs.remote());
  CHECK(copy->times().begun());
  CHECK(!copy->times().ended());
  pair.hang(false);
  check_all(copy);
}

TEST_CASE("staged transfers begin with their first chunk") {
  StagedCouple pair;
  const auto [ours, theirs] = pair.arrays({5000});
  const Keeping keeping;
  check_all(write(*pair.to_right, ours, theirs.remote()));
}

}  // namespace
}  // namespace zerohop::testing
