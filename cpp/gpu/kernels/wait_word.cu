// A stream waits for a word: one thread asks for it over and over, until it comes, the time is
// over, or the CPU says that there is no use. cuStreamWaitValue32 would take three times as long,
// and would never end if the word did not come.
#include "gpu/kernels/words.cuh"

using namespace zerohop::gpu;

namespace {

constexpr unsigned kLooks = 32;  // at the word, for each at the clock and the CPU's say

__device__ bool came(const Wait& wait, std::uint32_t& value) {
  value = acquire(wait.word);
  if (wait.awaited == Awaited::number) return static_cast<std::int32_t>(value - wait.number) >= 0;
  if (value == 0) return false;
  if (wait.reset == 0) return true;
  // The value that is taken is the one that was there: a later one may have replaced the first.
  value = exchange(wait.word, 0);
  return value != 0;  // 0: somebody else was faster
}

__device__ Outcome wait_for(const Wait& wait, std::uint32_t& value) {
  const std::uint64_t began = nanoseconds_now();
  for (;;) {
    for (unsigned i = 0; i < kLooks; ++i) {
      if (came(wait, value)) return kCame;
    }
    if (acquire(wait.given_up) != 0) return kGivenUp;
    if (nanoseconds_now() - began > wait.nanoseconds) return kTimedOut;
  }
}

}  // namespace

extern "C" __global__ void zerohop_wait_word(Wait wait) {
  std::uint32_t value = 0;
  const std::uint64_t outcome = wait_for(wait, value);
  // The kernels behind this one see what came before the word: it was acquired, and they begin once
  // this one has ended. The CPU needs the word itself.
  put(wait.outcome, outcome | std::uint64_t{value} << 32);
}
