// Which calls of a group of GPUs count as done once it has been cancelled, and what memory of other
// ranks calls hold: on fake CUDA, where a kernel that is cancelled ends without a word.
#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "engine/collective/gpu_group.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

using engine::collective::GpuGroup;
using engine::collective::GroupPart;
using engine::collective::GroupPlace;

struct Group : GpuCouple {
  const Reports reported;
  const Memory ours = array(left, {64});
  const Memory into = array(left, {64});
  const std::shared_ptr<engine::Poller> poller = std::make_shared<engine::Poller>(
      engine::Poller::Devices{}, std::chrono::microseconds(0), nullptr);  // the test polls
  void* stream = cuda.copies.program_stream();
  std::shared_ptr<GpuGroup> group = std::make_shared<GpuGroup>(
      GpuGroup::Host{.poller = poller, .look = [] {}},
      engine::collective::GroupPlace{.rank = 0, .size = 2},
      array(left, {static_cast<std::int64_t>(GpuGroup::nbytes_for(2))}), "the World", soon());

  TransferPtr call() {
    const std::array from{ours.layout().address};
    const std::array to{into.layout().address};
    return group->call({.kind = engine::collective::Kind::broadcast,
                        .root = 0,
                        .reduction = {},
                        .nbytes = 64,
                        .from = from,
                        .to = to},
                       stream, kTimeout);
  }
  TransferPtr ended_call() {
    cuda.copies.collectives_wait = false;
    TransferPtr transfer = call();
    REQUIRE(cuda.copies.run(stream));
    return transfer;
  }
  TransferPtr waiting_call() {
    cuda.copies.collectives_wait = true;
    TransferPtr transfer = call();
    REQUIRE_FALSE(cuda.copies.run(stream));
    return transfer;
  }
};

TEST_CASE_FIXTURE(
    Group, "what had ended when the group was cancelled is done, what was cut short failed") {
  const auto first = ended_call();
  const auto second = ended_call();
  const auto third = waiting_call();
  group->end("the World has ended");
  REQUIRE(cuda.copies.run(stream));
  group->end("the World has ended again");  // no later look counts
  group->poll();
  for (const auto& transfer : {first, second}) {
    CHECK(transfer->done());
    CHECK_FALSE(transfer->failed());
  }
  CHECK(contains(error_of(third), "the World was closed; the stream continues without it"));
  CHECK(Reports::count("the stream continues without it") == 1);
}

TEST_CASE_FIXTURE(Group, "polls beside a cancel take nothing that was cut short for done") {
  const auto first = ended_call();
  group->poll();
  CHECK(first->done());
  const auto second = waiting_call();
  group->end("the World has ended");
  group->poll();
  CHECK_FALSE(second->done());
  REQUIRE(cuda.copies.run(stream));
  group->poll();
  CHECK(second->failed());
}

TEST_CASE_FIXTURE(Group, "a group that is dropped fails only calls that had not ended") {
  const auto first = ended_call();
  const auto second = waiting_call();
  cuda.busy = true;  // what its kernel uses stays until that has ended
  group.reset();
  REQUIRE(cuda.copies.run(stream));
  cuda.busy = false;
  cuda.busy.notify_all();
  CHECK(first->done());
  CHECK_FALSE(first->failed());
  CHECK(contains(error_of(second), "the World was closed before its kernel ended"));
}

// Calls with arrays in registered memory of both ranks.
struct InPlace : Group {
  static constexpr std::int64_t kNbytes = std::int64_t{4} << 20;  // more than packets carry
  const Memory mine = array(left, {kNbytes});
  Memory theirs = array(right, {kNbytes});
  GroupPart part{GroupPlace{.rank = 0, .size = 2}, mine};

  InPlace() { part.meet(1, to_right, theirs.remote(), kTimeout); }

  engine::collective::GroupArrays arrays(const std::uint64_t& at) const {
    return {.kind = engine::collective::Kind::broadcast,
            .root = 0,
            .reduction = {},
            .nbytes = kNbytes,
            .from = {&at, 1},
            .to = {&at, 1}};
  }
  TransferPtr call_in_place() {
    const std::uint64_t at = mine.layout().address;
    return group->call(arrays(at), stream, kTimeout, &part);
  }
  std::pair<std::shared_ptr<GroupPart::Hold>, gpu::GroupCall> held_call() const {
    const std::uint64_t at = mine.layout().address;
    gpu::GroupCall call = plan({0, 2}, arrays(at), engine::collective::GroupLimits(2)).call;
    auto hold = part.hold(call);
    return {std::move(hold), call};
  }
  // Whether the other rank's close() waits for that.
  template <typename Release>
  bool close_waits_for(Release release) {
    std::jthread closing([this] { theirs.close(); });
    const bool waits = !eventually([this] { return theirs.withdrawn(); }, 0.2);
    release();
    return waits && eventually([this] { return theirs.withdrawn(); });
  }
};

TEST_CASE_FIXTURE(InPlace, "both ranks know the same memory, each by its own addresses") {
  GroupPart of_right(GroupPlace{.rank = 1, .size = 2}, theirs);
  of_right.meet(0, to_left, mine.remote(), kTimeout);
  const std::uint64_t at = theirs.layout().address;
  gpu::GroupCall there = plan({1, 2}, arrays(at), engine::collective::GroupLimits(2)).call;
  CHECK(of_right.hold(there));
  const auto [hold, here] = held_call();
  CHECK(hold);
  CHECK(here.part == there.part);
  for (const gpu::GroupCall& call : {here, there}) {
    CHECK(call.parts[0] == mine.layout().address);
    CHECK(call.parts[1] == theirs.layout().address);
  }
  const Memory anew = array(right, {kNbytes});
  GroupPart other(GroupPlace{.rank = 0, .size = 2}, mine);
  other.meet(1, to_right, anew.remote(), kTimeout);
  gpu::GroupCall call = here;
  CHECK(other.hold(call));
  CHECK(call.part != here.part);
}

TEST_CASE_FIXTURE(InPlace, "memory stays while a kernel may access it") {
  cuda.copies.collectives_wait = true;
  const TransferPtr transfer = call_in_place();
  REQUIRE_FALSE(cuda.copies.run(stream));
  CHECK(close_waits_for([&] {
    cuda.copies.collectives_wait = false;
    REQUIRE(cuda.copies.run(stream));
    group->poll();
  }));
  CHECK_FALSE(transfer->failed());
}

TEST_CASE_FIXTURE(InPlace, "memory stays while a graph or its group exists") {
  cuda.copies.begin_capture(stream);
  CHECK(call_in_place() == nullptr);
  auto graph = cuda.copies.end_capture(stream);
  SUBCASE("graph") {
    CHECK(close_waits_for([&] { graph.reset(); }));
  }
  SUBCASE("group") {
    CHECK(close_waits_for([&] { group.reset(); }));
  }
}

TEST_CASE_FIXTURE(InPlace, "once a rank has closed its memory, calls go through the arenas") {
  CHECK(held_call().first);
  SUBCASE("the other one") { theirs.close(); }
  SUBCASE("this one") { Memory(mine).close(); }
  const auto [hold, call] = held_call();
  CHECK_FALSE(hold);
  CHECK(call.parts[0] == 0);
  cuda.copies.collectives_wait = false;
  const TransferPtr transfer = call_in_place();
  REQUIRE(cuda.copies.run(stream));
  group->poll();
  CHECK(transfer->done());
  CHECK_FALSE(transfer->failed());
}

}  // namespace
}  // namespace zerohop::testing
