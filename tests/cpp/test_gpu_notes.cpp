// Notifications that GPUs put, which exist twice: whichever takes one, a stream or the CPU, the
// other no longer gets it.
#include <thread>

#include "base/error.hpp"
#include "base/report.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

template <bool has_room>
struct NotesIn : GpuCouple {
  const bool no_memory = (cuda.no_memory = !has_room);  // for mirrors, as arrays are registered
  Memory ours = array(left, {100});
  Memory theirs = array(right, {100});
  const bool memory_again = !(cuda.no_memory = false);
  void* writer = cuda.copies.program_stream();
  void* reader = cuda.copies.program_stream();

  void notify(std::uint32_t slot, std::uint32_t value) {
    const RemoteMemory remote = theirs.remote();
    const Peer::Pair pair{&ours, &remote};
    const auto written = to_right->write(
        {&pair, 1},
        {.notify = Notification{slot, value}, .require = "p2p", .timeout = {}, .stream = writer});
    REQUIRE(cuda.copies.run(writer));
    finish(written);
  }
  // Takes it in a stream, at once; 0: empty.
  std::uint64_t take_in_stream(std::uint32_t slot, bool reset = true) {
    const auto waiting = right.wait_notify_on(reader, slot, reset, 0.0);
    while (!cuda.copies.run(reader)) std::this_thread::yield();
    REQUIRE(waiting->wait(soon()));
    try {
      return waiting->result();
    } catch (const TransferTimeout&) {
      return 0;
    }
  }
};

using Notes = NotesIn<true>;
using NotesWithoutMirrors = NotesIn<false>;

struct Silent {
  ReportSink former = set_report_sink([](std::string_view) noexcept {});
  ~Silent() { set_report_sink(former); }
};

TEST_CASE_FIXTURE(Notes, "what the CPU has taken no stream finds") {
  const Silent silent;
  notify(5, 11);
  CHECK(right.wait_notify(5, 1, true, soon()).second == 11);
  CHECK(take_in_stream(5) == 0);
  notify(5, 12);
  CHECK(take_in_stream(5) == 12);
  CHECK(right.peek_notify(5) == 0);
}

TEST_CASE_FIXTURE(Notes, "what a stream has taken the CPU does not find") {
  const Silent silent;
  notify(5, 11);
  CHECK(take_in_stream(5) == 11);
  CHECK(right.peek_notify(5) == 0);
  CHECK(right.reset_notify(5) == 0);
  CHECK(take_in_stream(5) == 0);
  notify(5, 11);  // the same value is another notification
  CHECK(right.peek_notify(5) == 11);
  CHECK(right.reset_notify(5) == 11);
  CHECK(right.reset_notify(5) == 0);
}

TEST_CASE_FIXTURE(Notes, "a stream that only looks leaves the note to everybody") {
  notify(5, 11);
  CHECK(take_in_stream(5, false) == 11);
  CHECK(take_in_stream(5, false) == 11);
  CHECK(right.peek_notify(5) == 11);
  CHECK(right.reset_notify(5) == 11);
}

TEST_CASE_FIXTURE(Notes, "while a stream waits the notes of the slot are for it") {
  const Silent silent;
  const auto waiting = right.wait_notify_on(reader, 5, true, {});
  notify(5, 11);
  CHECK(right.peek_notify(5) == 0);
  CHECK(right.reset_notify(5) == 0);
  notify(6, 12);  // another slot
  CHECK(right.reset_notify(6) == 12);
  REQUIRE(cuda.copies.run(reader));
  REQUIRE(waiting->wait(soon()));
  CHECK(waiting->result() == 11);
}

TEST_CASE_FIXTURE(Notes, "a note that came too late for a stream wakes a sleeping thread") {
  const Silent silent;
  const auto waiting = right.wait_notify_on(reader, 5, true, 0.0);
  while (!cuda.copies.run(reader)) std::this_thread::yield();  // in vain
  notify(5, 11);
  std::uint32_t heard = 0;
  std::thread sleeper([&] { heard = right.wait_notify(0, 60000, true, soon()).second; });
  sleeper.join();
  CHECK(heard == 11);
  REQUIRE(waiting->wait(soon()));
  CHECK_THROWS_AS(waiting->result(), TransferTimeout);
}

TEST_CASE_FIXTURE(Notes, "many notes are taken in turn, each once") {
  const Silent silent;
  for (std::uint32_t value = 1; value < 40; ++value) {
    notify(5, value);
    const bool by_stream = value % 3 == 0;
    CHECK((by_stream ? take_in_stream(5) : right.reset_notify(5)) == value);
    CHECK((by_stream ? right.reset_notify(5) : take_in_stream(5)) == 0);
  }
}

TEST_CASE_FIXTURE(Notes, "a slot holds one value, whether the CPU or the GPU puts the later one") {
  const Silent silent;
  for (const bool by_stream : {false, true}) {
    const auto take = [&] { return by_stream ? take_in_stream(5) : right.reset_notify(5); };
    notify(5, 1);
    finish(to_right->notify({5, 2}));
    CHECK(right.peek_notify(5) == 2);
    CHECK(take() == 2);
    CHECK(take() == 0);
    finish(to_right->notify({5, 3}));
    notify(5, 4);
    CHECK(right.peek_notify(5) == 4);
    CHECK(take() == 4);
    CHECK(take() == 0);
  }
}

TEST_CASE_FIXTURE(Notes, "more waits than a slot knows tags of end in an order of their own") {
  const Silent silent;
  void* second = cuda.copies.program_stream();
  std::vector<engine::TransferPtr> waits{right.wait_notify_on(second, 5, true, {})};
  for (int i = 0; i < 9; ++i) waits.push_back(right.wait_notify_on(reader, 5, true, {}));
  for (std::uint32_t value = 1; value <= 9; ++value) {
    notify(5, value);
    cuda.copies.run(reader);
  }
  notify(5, 10);
  REQUIRE(cuda.copies.run(second));
  for (const auto& wait : waits) finish(wait);
  CHECK(waits[0]->result() == 10);
  CHECK(right.reset_notify(5) == 0);
  CHECK(take_in_stream(5) == 0);
}

TEST_CASE_FIXTURE(Notes, "streams find notes in the memory of their GPU") {
  const Silent silent;
  CHECK(contains(right.wait_notify_on(reader, 1, true, 0.0)->route().reason,
                 "notifications in the memory of cuda:0"));
  while (!cuda.copies.run(reader)) std::this_thread::yield();
}

TEST_CASE_FIXTURE(NotesWithoutMirrors,
                  "without memory for mirrors streams find notes on the host") {
  const Silent silent;
  CHECK(contains(right.wait_notify_on(reader, 1, true, 0.0)->route().reason,
                 "in host memory (cuMemAlloc"));
  while (!cuda.copies.run(reader)) std::this_thread::yield();
  notify(5, 11);
  CHECK(take_in_stream(5) == 11);
  CHECK(right.reset_notify(5) == 0);
  notify(5, 12);
  CHECK(right.reset_notify(5) == 12);
  CHECK(take_in_stream(5) == 0);
}

}  // namespace
}  // namespace zerohop::testing
