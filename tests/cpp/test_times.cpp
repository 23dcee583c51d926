// When a Transfer was requested, began to move and ended: recorded only on request.
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

using engine::Times;

// For its lifetime.
struct Keeping {
  Keeping() { Times::keep(true); }
  ~Keeping() { Times::keep(false); }
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;
};

// All present, in order, for a finished transfer.
void check_all(const engine::TransferPtr& transfer) {
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
  const Memory near = StagedCouple::host_array(couple.left, {20000});
  const Memory far = StagedCouple::host_array(couple.right, {20000});
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
  const Memory near = StagedCouple::host_array(couple.left, {20000});
  const Memory far = StagedCouple::host_array(couple.right, {20000});
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
  const Memory far = StagedCouple::host_array(couple.right, {20000});
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
  const Memory ours = pair.array(pair.left, {5000});
  const Memory theirs = pair.array(pair.right, {5000});
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
  const Memory ours = pair.gpu_array(pair.left, {5000});
  const Memory theirs = pair.gpu_array(pair.right, {5000});
  const Keeping keeping;
  check_all(write(*pair.to_right, ours, theirs.remote()));
}

}  // namespace
}  // namespace zerohop::testing
