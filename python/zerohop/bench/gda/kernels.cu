// What `zerohop bench gda` measures: kernels that communicate by zerohop, and a bare copy beside
// them.
#include <zerohop/device.cuh>

using namespace zerohop::device;

constexpr u64 kPatienceNs = 2000000000;  // of every wait: a far side that is dead ends the kernel
constexpr u32 kLooksOfWord = 1024;       // for each at the clock

// Of the host's side: zeros before each launch.
struct Outcome {
  u64 status;   // the worst of a Status
  u64 took;     // nanoseconds; of entries: until the last thread had posted its own
  u64 done_in;  // nanoseconds, until the last thread's were done
};

__device__ inline void note(u64& place, u64 value) {
  atomicMax(reinterpret_cast<unsigned long long*>(&place), static_cast<unsigned long long>(value));
}

// `count` rounds by the clock, behind `warm` others; each has a value of its own, from `base` on.
struct Rounds {
  u32 count;
  u32 warm;
  u32 base;
  u32 first;  // 1: this side throws first
};

// When the clock began to run, behind this round.
__device__ inline u64 begin_of(const Rounds& rounds, u32 round, u64 began) {
  return round == rounds.warm ? nanoseconds_now() : began;
}

// What an earlier figure has left in the slot is dropped.
template <typename Team>
__device__ Status await(const Board& board, u32 slot, u32 expected) {
  u32 value = 0;
  Status got = Status::ok;
  while (got == Status::ok && value != expected) {
    got = wait_notify<Team>(board, slot, kPatienceNs, &value, Reset::alone);
  }
  return got;
}

template <typename Team>
__device__ void ping_pong(const Queue& queue, const Board& board, const Rounds& rounds, u64 nbytes,
                          u32 slot, Outcome* outcome) {
  u64 began = 0;
  for (u32 round = 1; round <= rounds.warm + rounds.count; ++round) {
    const u32 value = rounds.base + round;
    Status got = Status::ok;
    if (rounds.first) got = put_notify<Team>(queue, 0, 0, nbytes, slot, value);
    if (got == Status::ok) got = await<Team>(board, slot, value);
    if (got == Status::ok && !rounds.first) {
      got = put_notify<Team>(queue, 0, 0, nbytes, slot, value);
    }
    if (got != Status::ok) return note(outcome->status, static_cast<u64>(got));
    began = begin_of(rounds, round, began);
  }
  if (Team::rank() == 0) outcome->took = nanoseconds_now() - began;
}

extern "C" __global__ void ping_pong_thread(Queue queue, Board board, Rounds rounds, u64 nbytes,
                                            u32 slot, Outcome* outcome) {
  ping_pong<Thread>(queue, board, rounds, nbytes, slot, outcome);
}
extern "C" __global__ void __launch_bounds__(1024)
    ping_pong_block(Queue queue, Board board, Rounds rounds, u64 nbytes, u32 slot,
                    Outcome* outcome) {
  ping_pong<Block>(queue, board, rounds, nbytes, slot, outcome);
}

__device__ inline Status await_word(u64 address, u32 expected) {
  const volatile u32* const word = reinterpret_cast<const u32*>(address);
  const u64 began = nanoseconds_now();
  for (u32 looks = 1; *word != expected; ++looks) {
    if (looks % kLooksOfWord == 0 && nanoseconds_now() - began > kPatienceNs) {
      return Status::timed_out;
    }
  }
  return Status::ok;
}

// The barest there is: a word is put at `at`, and looked for.
extern "C" __global__ void word_ping_pong(Queue queue, Rounds rounds, u64 at, Outcome* outcome) {
  u64 began = 0;
  for (u32 round = 1; round <= rounds.warm + rounds.count; ++round) {
    const u32 value = rounds.base + round;
    Status got = Status::ok;
    if (rounds.first) got = put_value(queue, at, value);
    if (got == Status::ok) got = await_word(queue.local + at, value);
    if (got == Status::ok && !rounds.first) got = put_value(queue, at, value);
    if (got != Status::ok) return note(outcome->status, static_cast<u64>(got));
    began = begin_of(rounds, round, began);
  }
  outcome->took = nanoseconds_now() - began;
}

__device__ inline u64 thread_of_grid() { return u64{blockIdx.x} * blockDim.x + threadIdx.x; }

// A compiler may not leave a store out because the next one goes to the same place.
__device__ inline void keep_stores() { asm volatile("" ::: "memory"); }

// Each thread, 8 bytes of its own place so many times: of its memory, or of a register.
extern "C" __global__ void __launch_bounds__(512)
    put_many(Queue queue, u32 times, Outcome* outcome) {
  const u64 at = thread_of_grid() * sizeof(u64);
  Status got = Status::ok;
  for (u32 i = 0; i < times && got == Status::ok; ++i) {
    got = put(queue, at, at, sizeof(u64));
    keep_stores();
  }
  if (got != Status::ok) note(outcome->status, static_cast<u64>(got));
}
extern "C" __global__ void __launch_bounds__(512)
    put_values(Queue queue, u32 times, Outcome* outcome) {
  const u64 thread = thread_of_grid();
  Status got = Status::ok;
  for (u32 i = 0; i < times && got == Status::ok; ++i) {
    got = put_value(queue, thread * sizeof(u64), thread + i);
    keep_stores();
  }
  if (got != Status::ok) note(outcome->status, static_cast<u64>(got));
}

// The same by a ring, by the clock.
extern "C" __global__ void post_values(Queue queue, u32 times, Outcome* outcome) {
  const u64 thread = thread_of_grid();
  const u64 began = nanoseconds_now();
  Ticket ticket;
  Status got = Status::ok;
  for (u32 i = 0; i < times && got == Status::ok; ++i) {
    got = put_value(queue, thread * sizeof(u64), thread + i, &ticket);
  }
  const u64 posted = nanoseconds_now();
  if (got == Status::ok) got = wait(queue, ticket);
  if (got != Status::ok) note(outcome->status, static_cast<u64>(got));
  note(outcome->took, posted - began);
  note(outcome->done_in, nanoseconds_now() - began);
}

// All blocks together, a piece at a time.
extern "C" __global__ void __launch_bounds__(1024)
    put_wide(Queue queue, u64 nbytes, u64 piece, Outcome* outcome) {
  Status got = Status::ok;
  for (u64 at = blockIdx.x * piece; at < nbytes && got == Status::ok; at += gridDim.x * piece) {
    const u64 left = nbytes - at;
    got = put<Block>(queue, at, at, left < piece ? left : piece);
  }
  if (got != Status::ok) note(outcome->status, static_cast<u64>(got));
}

// The same with no more than streaming loads and stores, of 16 bytes: what a kernel can reach.
constexpr u32 kUnderWayOfCopy = 8;
extern "C" __global__ void __launch_bounds__(1024)
    copy_wide(Queue queue, u64 nbytes, u64 piece, Outcome*) {
  const uint4* const source = reinterpret_cast<const uint4*>(queue.local);
  uint4* const target = reinterpret_cast<uint4*>(queue.remote);
  const u64 all = nbytes / sizeof(uint4), share = piece / sizeof(uint4);
  for (u64 begin = blockIdx.x * share; begin < all; begin += gridDim.x * share) {
    const u64 end = begin + share < all ? begin + share : all;
    for (u64 i = begin + threadIdx.x; i < end; i += u64{kUnderWayOfCopy} * blockDim.x) {
      uint4 values[kUnderWayOfCopy] = {};
#pragma unroll
      for (u32 k = 0; k < kUnderWayOfCopy; ++k) {
        if (i + k * blockDim.x < end) values[k] = __ldcs(source + i + k * blockDim.x);
      }
#pragma unroll
      for (u32 k = 0; k < kUnderWayOfCopy; ++k) {
        if (i + k * blockDim.x < end) __stcs(target + i + k * blockDim.x, values[k]);
      }
    }
  }
}
