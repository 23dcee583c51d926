// The program destroys a GPU's context while Endpoints use it: a clear error, never a hang, and
// host memory keeps working. With fake CUDA.
#include <doctest/doctest.h>

#include <string>

#include "base/error.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

constexpr driver::CudaResult kDestroyed = 709;  // CUDA_ERROR_CONTEXT_IS_DESTROYED
const std::string kSaid = "(709), made to fail; the program has destroyed or reset the context";
constexpr std::chrono::seconds kSoon{8};  // with two copies that are waited for

// The error of a transfer, at once or later.
template <typename Call>
std::string failure_of(Call call) {
  return message_of<Error>([&] {
    const auto transfer = call();
    REQUIRE(transfer->wait(soon()));
    (void)transfer->result();
  });
}

struct Gone {
  explicit Gone(FakeCuda& of) : cuda(of) {
    cuda.error = kDestroyed;
    cuda.gone = true;
  }
  ~Gone() { cuda.gone = false; }  // the fake would otherwise count the context's objects as leaked
  FakeCuda& cuda;
};

// All that is left to do once the GPU's memory is gone.
template <typename Couple>
void ends_well(Couple& couple, Memory& ours, Memory& theirs) {
  const Memory near = couple.left.empty(std::vector<std::int64_t>{1000}, kByte);
  const Memory far = couple.right.empty(std::vector<std::int64_t>{1000}, kByte);
  StagedCouple::finish(write(*couple.to_right, near, far.remote(), Notification{3, 1}));
  CHECK(couple.right.wait_notify(3, 1, true, soon()).second == 1);
  const auto begin = Deadline::Clock::now();
  ours.close();
  theirs.close();
  couple.left.close(within(1));
  couple.right.close(within(1));
  CHECK(Deadline::Clock::now() - begin < kSoon);
}

template <typename Couple>
void refuses_and_ends_well(Couple& couple, Memory ours, Memory theirs) {
  StagedCouple::finish(write(*couple.to_right, ours, theirs.remote()));
  const Gone gone(couple.cuda);
  for (int i = 0; i < 3; ++i) {
    CHECK(contains(failure_of([&] { return write(*couple.to_right, ours, theirs.remote()); }),
                   kSaid));
    CHECK(
        contains(failure_of([&] { return read(*couple.to_right, ours, theirs.remote()); }), kSaid));
  }
  ends_well(couple, ours, theirs);
}

}  // namespace

TEST_CASE("by p2p") {
  GpuCouple couple;
  refuses_and_ends_well(couple, couple.array(couple.left, {1000}),
                        couple.array(couple.right, {1000}));
}

TEST_CASE("by a device that reaches the memory") {
  StagedCouple couple(false);
  refuses_and_ends_well(couple, couple.gpu_array(couple.left, {1000}),
                        couple.gpu_array(couple.right, {1000}));
}

TEST_CASE("by chunks of the host") {
  StagedCouple couple;
  refuses_and_ends_well(couple, couple.gpu_array(couple.left, {100000}),
                        couple.gpu_array(couple.right, {100000}));
}

TEST_CASE("in the middle of a copy") {
  GpuCouple couple;
  Memory ours = couple.array(couple.left, {1000});
  Memory theirs = couple.array(couple.right, {1000});
  finish(write(*couple.to_right, ours, theirs.remote()));
  couple.hang(true);
  const auto written = write(*couple.to_right, ours, theirs.remote());
  const Gone gone(couple.cuda);
  const std::string said = error_of(written);
  CHECK(contains(said, kSaid));
  CHECK(written->failure()->effect == Effect::some);
  couple.hang(false);
  ends_well(couple, ours, theirs);
}

TEST_CASE("new memory is refused with the cause") {
  GpuCouple couple;
  const Memory before = couple.array(couple.left, {1000});
  const Gone gone(couple.cuda);
  const std::string said = message_of<Error>([&] { (void)couple.array(couple.left, {1000}); });
  CHECK(contains(said, kSaid));
}

}  // namespace zerohop::testing
