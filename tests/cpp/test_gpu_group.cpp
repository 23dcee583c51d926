// Which calls of a group of GPUs count as done once it has been cancelled: on fake CUDA, where a
// kernel that is cancelled ends without a word.
#include <array>
#include <chrono>
#include <memory>

#include "engine/collective/gpu_group.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

using engine::collective::GpuGroup;

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

}  // namespace
}  // namespace zerohop::testing
