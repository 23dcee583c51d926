// Notifications that GPUs put, which exist twice, in host and GPU memory: whichever takes one, a
// stream, a kernel or the CPU, the others no longer get it.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <thread>

#include "engine/stream/note_mirrors.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;

// --- mirrors in GPU memory, and their accessibility to other GPUs of the process ---

struct Mirrors {
  FakeCuda cuda;
  AllGivenBack given_back{cuda};
  const int gpus = (cuda.gpus = 2);
  std::shared_ptr<const gpu::Device> first = gpu::Device::open(cuda.table(), 0);
  std::shared_ptr<const gpu::Device> second = gpu::Device::open(cuda.table(), 1);
  NoteMirrors mirrors{std::make_shared<Board>(), std::make_shared<shm::Exposures>()};

  std::string refusal() {
    return message_of<RouteUnavailable>([this] { (void)mirrors.of(second); });
  }
};

TEST_CASE_FIXTURE(Mirrors, "another GPU reaches them where both have native atomics") {
  mirrors.settle(first);
  const auto own = mirrors.of(first);
  REQUIRE(own.address != 0);
  CHECK(mirrors.of(second).address == own.address);
  mirrors.settle(second);  // settled once and for all
  CHECK(mirrors.where() == "in the memory of cuda:0");
}

TEST_CASE_FIXTURE(Mirrors, "a GPU that cannot is refused with the reason") {
  mirrors.settle(first);
  SUBCASE("without native atomics") {
    cuda.native_atomics = false;
    const std::string reason = refusal();
    CHECK(reason.find("cuda:1 does not reach cuda:0") == 0);
    CHECK(contains(reason, "there are no native atomics between the two"));
    CHECK(contains(reason, "wait for them on the CPU"));
  }
  SUBCASE("without peer access") {
    cuda.refuses_peers = true;
    CHECK(contains(refusal(), "cuCtxEnablePeerAccess"));
  }
  CHECK(mirrors.of(first).address != 0);
}

TEST_CASE_FIXTURE(Mirrors, "where there is no room they are given up once") {
  cuda.no_memory = true;
  mirrors.settle(first);
  cuda.no_memory = false;
  mirrors.settle(first);
  CHECK(mirrors.of(first).address == 0);
  CHECK(mirrors.where().find("in host memory (cuMemAlloc") == 0);
}

// --- streams ---

template <bool has_room>
struct NotesIn : GpuCouple {
  const Reports silenced;
  const bool no_memory = (cuda.no_memory = !has_room);  // for mirrors, as arrays are registered
  Memory ours = array(left, {100});
  Memory theirs = array(right, {100});
  const bool memory_again = !(cuda.no_memory = false);
  void* writer = cuda.copies.program_stream();
  void* reader = cuda.copies.program_stream();

  void notify(std::uint32_t slot, std::uint32_t value) {
    const auto written =
        write(*to_right, ours, theirs.remote(), by("p2p", Notification{slot, value}, {}, writer));
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

TEST_CASE_FIXTURE(Notes, "what the CPU has taken no stream finds") {
  notify(5, 11);
  CHECK(right.wait_notify(5, 1, true, soon()).second == 11);
  CHECK(take_in_stream(5) == 0);
  notify(5, 12);
  CHECK(take_in_stream(5) == 12);
  CHECK(right.peek_notify(5) == 0);
}

TEST_CASE_FIXTURE(Notes, "what a stream has taken the CPU does not find") {
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
  const auto waiting = right.wait_notify_on(reader, 5, true, 0.0);
  while (!cuda.copies.run(reader)) std::this_thread::yield();  // in vain
  notify(5, 11);
  std::uint32_t heard = 0;
  std::thread sleeper([&] { heard = right.wait_notify(0, 60000, true, soon()).second; });
  sleeper.join();
  CHECK(heard == 11);
  (void)failure_of<TransferTimeout>(waiting);
}

TEST_CASE_FIXTURE(Notes, "many notes are taken in turn, each once") {
  for (std::uint32_t value = 1; value < 40; ++value) {
    notify(5, value);
    const bool by_stream = value % 3 == 0;
    CHECK((by_stream ? take_in_stream(5) : right.reset_notify(5)) == value);
    CHECK((by_stream ? right.reset_notify(5) : take_in_stream(5)) == 0);
  }
}

TEST_CASE_FIXTURE(Notes, "a slot holds one value, whether the CPU or the GPU puts the later one") {
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
  void* second = cuda.copies.program_stream();
  std::vector<TransferPtr> waits{right.wait_notify_on(second, 5, true, {})};
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
  CHECK(contains(right.wait_notify_on(reader, 1, true, 0.0)->route().reason,
                 "notifications in the memory of cuda:0"));
  while (!cuda.copies.run(reader)) std::this_thread::yield();
}

TEST_CASE_FIXTURE(NotesWithoutMirrors,
                  "without memory for mirrors streams find notes on the host") {
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

// --- slots that kernels wait on ---

struct Claims : Notes {
  std::unique_ptr<engine::SlotClaim> claim(std::uint32_t first = 5, std::uint32_t count = 3) {
    return right.claim_slots("cuda:0", first, count, soon());
  }
  // As a kernel does.
  std::uint32_t take(const engine::SlotClaim& claim, std::uint32_t slot) {
    const std::uint64_t at = claim.reached().notes + slot * sizeof(gpu::Note);
    const Bytes found = cuda.copies.read(at, sizeof(gpu::Note));
    gpu::Note note = 0;
    std::memcpy(&note, found.data(), sizeof note);
    cuda.copies.write(at, Bytes(sizeof note));
    return gpu::value_of(note);
  }
};

TEST_CASE_FIXTURE(Claims, "what lies in a slot before it is claimed is for the kernels") {
  notify(5, 11);
  const auto claimed = claim();
  CHECK(right.peek_notify(5) == 0);
  CHECK(take(*claimed, 5) == 11);
}

TEST_CASE_FIXTURE(Claims, "what the CPU has taken no kernel finds") {
  notify(5, 11);
  notify(6, 12);
  CHECK(right.reset_notify(5) == 11);
  const auto claimed = claim();
  CHECK(take(*claimed, 5) == 0);
  CHECK(take(*claimed, 6) == 12);
}

TEST_CASE_FIXTURE(Claims, "what kernels have taken the CPU does not find, what they left it does") {
  auto claimed = claim();
  notify(5, 11);
  notify(6, 12);
  CHECK(take(*claimed, 5) == 11);
  claimed.reset();
  CHECK(right.peek_notify(5) == 0);
  CHECK(right.reset_notify(6) == 12);
  notify(5, 13);
  CHECK(right.reset_notify(5) == 13);
}

TEST_CASE_FIXTURE(Claims,
                  "a GPU that hangs refuses the claim in time, and the slots stay the CPU's") {
  notify(5, 11);
  hang(true);
  CHECK(message_of<TransferTimeout>([&] {
          (void)right.claim_slots("cuda:0", 5, 1, Deadline::after(Deadline::Seconds(0.05)));
        }).find("keeps the GPU busy") != std::string::npos);
  hang(false);
  CHECK(right.reset_notify(5) == 11);
}

TEST_CASE_FIXTURE(Claims, "a note for the CPU alone is the CPU's, whoever has the slot") {
  const RemoteMemory remote = theirs.remote();
  const auto reach = to_right->kernels().mapped({&ours, &remote}, engine::Hearers::cpu, 30);
  REQUIRE(reach.notes.mirrors == 0);
  const auto put = [&](std::uint32_t slot, std::uint32_t value) {  // as a kernel does
    const std::uint32_t tag = reach.notes.writer * gpu::kFirstTag + value;
    auto* const notes = reinterpret_cast<std::atomic<gpu::Note>*>(reach.notes.notes);
    notes[slot].store(gpu::make_note(value, tag));
  };
  put(5, 11);
  auto claimed = claim();
  CHECK(right.peek_notify(5) == 11);
  put(6, 12);
  claimed.reset();
  CHECK(right.reset_notify(5) == 11);
  CHECK(right.reset_notify(6) == 12);
}

TEST_CASE_FIXTURE(Claims, "slots that do not exist are refused") {
  CHECK_THROWS_AS((void)claim(65535, 2), std::out_of_range);
  CHECK_THROWS_AS((void)claim(0, 0), std::invalid_argument);
}

TEST_CASE_FIXTURE(Claims, "kernels see that nobody is left that could put anything") {
  const auto claimed = claim();
  const auto& lonely =
      *reinterpret_cast<const std::atomic<std::uint32_t>*>(claimed->reached().lonely);
  CHECK(lonely == 0);
  to_right->close(soon());
  REQUIRE(message_of<PeerLost>([&] { (void)right.wait_notify(9, 1, true, soon()); }) != "");
  CHECK(lonely == 1);
}

}  // namespace
}  // namespace zerohop::testing
