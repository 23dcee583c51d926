"""Kernels that communicate by themselves, for the tests: compiled by CuPy at run time."""

from typing import Any

import zerohop as zh

SOURCE = r"""
#include <zerohop/device.cuh>
using namespace zerohop::device;

// Of each team: 0 a thread, 1 a warp, 2 a block.
#define FOR_TEAM(team, call)              \
  (team == 0   ? static_cast<int>(call(Thread)) \
   : team == 1 ? static_cast<int>(call(Warp))   \
               : static_cast<int>(call(Block)))

extern "C" __global__ void put_one(Queue queue, int team, u64 to, u64 from, u64 nbytes, int* status) {
#define CALL(Team) put<Team>(queue, to, from, nbytes)
  const int got = FOR_TEAM(team, CALL);
#undef CALL
  if (threadIdx.x == 0) *status = got;
}

extern "C" __global__ void get_one(Queue queue, int team, u64 from, u64 to, u64 nbytes, int* status) {
#define CALL(Team) get<Team>(queue, from, to, nbytes)
  const int got = FOR_TEAM(team, CALL);
#undef CALL
  if (threadIdx.x == 0) *status = got;
}

// The same, which return when it is done.
template <typename Team>
__device__ Status done(Queue queue, Status begun) {
  return begun == Status::ok ? flush<Team>(queue) : begun;
}
extern "C" __global__ void put_done(Queue queue, int team, u64 to, u64 from, u64 nbytes, int* status) {
#define CALL(Team) done<Team>(queue, put<Team>(queue, to, from, nbytes))
  const int got = FOR_TEAM(team, CALL);
#undef CALL
  if (threadIdx.x == 0) *status = got;
}
extern "C" __global__ void get_done(Queue queue, int team, u64 from, u64 to, u64 nbytes, int* status) {
#define CALL(Team) done<Team>(queue, get<Team>(queue, from, to, nbytes))
  const int got = FOR_TEAM(team, CALL);
#undef CALL
  if (threadIdx.x == 0) *status = got;
}

// Each thread puts `times` values of its own, and waits for the last. took: nanoseconds of thread 0, until
// all were posted and until they were done.
extern "C" __global__ void put_values(Queue queue, u32 times, int* status, u64* took) {
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  const u64 began = nanoseconds_now();
  Ticket ticket;
  Status got = Status::ok;
  for (u32 i = 0; i < times && got == Status::ok; ++i) {
    const u64 at = u64{thread} * times + i;
    got = put_value(queue, at * sizeof(u64), at * 3 + 1, &ticket);
  }
  const u64 posted = nanoseconds_now();
  if (got == Status::ok) got = wait(queue, ticket);
  if (got != Status::ok) atomicMax(status, static_cast<int>(got));
  if (thread != 0) return;
  took[0] = posted - began;
  took[1] = nanoseconds_now() - began;
}

extern "C" __global__ void put_notify_one(Queue queue, int team, u64 to, u64 from, u64 nbytes, u32 slot,
                                          u32 value, int* status) {
#define CALL(Team) put_notify<Team>(queue, to, from, nbytes, slot, value)
  const int got = FOR_TEAM(team, CALL);
#undef CALL
  if (threadIdx.x == 0) *status = got;
}

extern "C" __global__ void put_checked(Queue queue, int team, u64 to, u64 from, u64 nbytes, u32 slot, int* status) {
#define CALL(Team) put_notify_checked<Team>(queue, to, from, nbytes, slot)
  const int got = FOR_TEAM(team, CALL);
#undef CALL
  if (threadIdx.x == 0) *status = got;
}
extern "C" __global__ void wait_checked(Board board, int team, const void* at, u64 nbytes, u32 slot, u64 nanoseconds,
                                        int* status) {
#define CALL(Team) wait_notify_checked<Team>(board, slot, at, nbytes, nanoseconds)
  const int got = FOR_TEAM(team, CALL);
#undef CALL
  if (threadIdx.x == 0) *status = got;
}

extern "C" __global__ void notify_one(Queue queue, u32 slot, u32 value, int* status) {
  *status = static_cast<int>(notify(queue, slot, value));
}

// found: status, slot, value, and how long it took in microseconds.
extern "C" __global__ void wait_any(Board board, int team, u32 first, u32 count, u64 nanoseconds,
                                    int reset, int* found) {
  u32 slot = 0, value = 0;
  const u64 began = nanoseconds_now();
#define CALL(Team) wait_notify_any<Team>(board, first, count, nanoseconds, &slot, &value, static_cast<Reset>(reset))
  const int got = FOR_TEAM(team, CALL);
#undef CALL
  if (threadIdx.x != 0) return;
  found[0] = got;
  found[1] = static_cast<int>(slot);
  found[2] = static_cast<int>(value);
  found[3] = static_cast<int>((nanoseconds_now() - began) / 1000);
}

// Every thread adds `times`; olds gets what each addition found, in any order.
extern "C" __global__ void count_up(Queue queue, u64 offset, int times, u64* olds, int* status) {
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < times; ++i) {
    const Status got = fetch_add(queue, offset, u64{1}, olds + thread * times + i);
    if (got != Status::ok) *status = static_cast<int>(got);
  }
}

extern "C" __global__ void swap_one(Queue queue, u64 offset, u32 expected, u32 desired, u32* old,
                                    int* status) {
  *status = static_cast<int>(compare_swap(queue, offset, expected, desired, old));
}

__device__ unsigned char byte_of(u32 round, u64 at) { return round * 131u + at * 7u + (at >> 8); }

// One block of each pair writes rounds into the other's memory and awaits its answer; the other checks
// every byte when it was notified. bad: how many bytes were not those of the round.
extern "C" __global__ void write_rounds(Queue queue, Board board, u32 rounds, u32 nbytes, u32 slot,
                                        u64 patience, int* status) {
  const u64 mine = u64{blockIdx.x} * nbytes;
  unsigned char* const source = reinterpret_cast<unsigned char*>(queue.local + mine);
  for (u32 round = 1; round <= rounds; ++round) {
    for (u32 i = threadIdx.x; i < nbytes; i += blockDim.x) source[i] = byte_of(round, i);
    __syncthreads();
    Status got = put_notify<Block>(queue, mine, mine, nbytes, slot + blockIdx.x, round);
    u32 value = 0;
    if (got == Status::ok) got = wait_notify<Block>(board, slot + blockIdx.x, patience, &value);
    if (got == Status::ok && value == round) continue;
    if (threadIdx.x == 0) atomicMax(status, got == Status::ok ? 100 : static_cast<int>(got));
    return;
  }
}
extern "C" __global__ void check_rounds(Queue queue, Board board, u32 rounds, u32 nbytes, u32 slot,
                                        u64 patience, int* status, unsigned long long* bad) {
  // What the peer writes is this process's local array of the queue back to it.
  const volatile unsigned char* const here =
      reinterpret_cast<const unsigned char*>(queue.local + u64{blockIdx.x} * nbytes);
  for (u32 round = 1; round <= rounds; ++round) {
    u32 value = 0;
    Status got = wait_notify<Block>(board, slot + blockIdx.x, patience, &value, Reset::alone);
    u32 wrong = 0;
    for (u32 i = threadIdx.x; i < nbytes; i += blockDim.x) wrong += here[i] != byte_of(round, i);
    if (wrong != 0) atomicAdd(bad, static_cast<unsigned long long>(wrong));
    __syncthreads();
    if (got == Status::ok && value == round) got = notify<Block>(queue, slot + blockIdx.x, round);
    if (got == Status::ok && value == round) continue;
    if (threadIdx.x == 0) atomicMax(status, got == Status::ok ? 100 : static_cast<int>(got));
    return;
  }
}
"""

THREAD, WARP, BLOCK = 0, 1, 2
OK, TIMED_OUT, OUT_OF_BOUNDS, NOT_ALLOWED, MISALIGNED, BAD_SLOT, CLOSED, FAILED, CORRUPT = range(9)


def fetch(array: Any) -> Any:
    """
    The content, when all kernels are done: while a thread copies to pageable memory behind a kernel that
    waits, the driver holds up every copy of the process, and with them those that the kernel may wait for.
    """
    import cupy

    cupy.cuda.runtime.deviceSynchronize()
    return array.get()


def kernels() -> Any:
    """``kernels().name(grid, block, arguments)``"""
    import cupy

    return cupy.RawModule(code=SOURCE, options=zh.compile_options())


class Kernels:
    """The kernels on the current GPU, called with a grid, a block and plain arguments."""

    def __init__(self) -> None:
        self._module = kernels()
        self._module.compile()  # now: no kernel of the other side waits for it

    def __getattr__(self, name: str) -> Any:
        function = self._module.get_function(name)

        def call(blocks: int, threads: int, *arguments: Any) -> None:
            function((blocks,), (threads,), arguments)

        return call
