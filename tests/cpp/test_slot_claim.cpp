// Slots that kernels wait on: what was taken before, by which side, and what is left for the CPU
// afterwards.
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

struct Claims : GpuCouple {
  Memory ours = array(left, {100});
  Memory theirs = array(right, {100});
  void* writer = cuda.copies.program_stream();

  void notify(std::uint32_t slot, std::uint32_t value) {
    const RemoteMemory remote = theirs.remote();
    const Peer::Pair pair{&ours, &remote};
    const auto written = to_right->write(
        {&pair, 1},
        {.notify = Notification{slot, value}, .require = "p2p", .timeout = {}, .stream = writer});
    REQUIRE(cuda.copies.run(writer));
    finish(written);
  }
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
  const auto reach = to_right->reach_for_kernels(ours, remote, engine::Hearers::cpu, {});
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
