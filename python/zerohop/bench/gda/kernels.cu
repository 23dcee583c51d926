// The kernels of `zerohop bench gda`: kernels that communicate by zerohop, and a bare copy for
// comparison.
#include <zerohop/device.cuh>

using namespace zerohop::device;

constexpr u64 kPatienceNs = 2000000000;  // of every wait: the kernel ends if the far side is dead
constexpr u32 kLooksOfWord = 1024;       // polls for each clock reading

// Set to zeros by the host before each launch.
struct Outcome {
  u64 status;   // the worst Status
  u64 took;     // nanoseconds; for entries: until the last thread had posted
  u64 done_in;  // nanoseconds, until the last thread's entries were done
};

__device__ inline void note(u64& place, u64 value) {
  atomicMax(reinterpret_cast<unsigned long long*>(&place), static_cast<unsigned long long>(value));
}

// `count` timed rounds, after `warm` untimed ones; each has its own value, from `base`.
struct Rounds {
  u32 count;
  u32 warm;
  u32 base;
  u32 first;  // 1: this side throws first
};

// The start time, after this round.
__device__ inline u64 begin_of(const Rounds& rounds, u32 round, u64 began) {
  return round == rounds.warm ? nanoseconds_now() : began;
}

// Drops a value that an earlier figure has left in the slot.
template <typename Team>
__device__ Status await(const Board& board, u32 slot, u32 expected) {
  u32 value = 0;
  Status got = Status::ok;
  while (got == Status::ok && value != expected) {
    got = wait_notify<Team>(board, slot, kPatienceNs, &value, Reset::alone);
  }
  return got;
}

// The lower half of an array is for receiving, the upper one for sending.
__device__ inline u64 outbox(const Queue& queue) { return queue.local_nbytes / 2; }

template <typename Team>
__device__ void ping_pong(const Queue& queue, const Board& board, const Rounds& rounds, u64 nbytes,
                          u32 slot, Outcome* outcome) {
  u64 began = 0;
  for (u32 round = 1; round <= rounds.warm + rounds.count; ++round) {
    const u32 value = rounds.base + round;
    Status got = Status::ok;
    if (rounds.first) got = put_notify<Team>(queue, 0, outbox(queue), nbytes, slot, value);
    if (got == Status::ok) got = await<Team>(board, slot, value);
    if (got == Status::ok && !rounds.first) {
      got = put_notify<Team>(queue, 0, outbox(queue), nbytes, slot, value);
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

// Polls this side's memory for the other side's word.
__device__ inline Status await_word(u64 word, u32 expected) {
  const u64 began = nanoseconds_now();
  for (u32 looks = 1; acquire(word) != expected; ++looks) {
    if (looks % kLooksOfWord == 0 && nanoseconds_now() - began > kPatienceNs) {
      return Status::timed_out;
    }
  }
  return Status::ok;
}

// The bound of put_notify: block stores, a fence, and a word at `at`, for which the other side
// polls.
__device__ inline void put_barely(const Queue& queue, u64 nbytes, u64 at, u32 value) {
  const u64 from = queue.local + outbox(queue);
  if (nbytes < sizeof(uint4)) {
    *reinterpret_cast<u64*>(queue.remote) = *reinterpret_cast<const u64*>(from);
  } else {
    const u64 whole = nbytes / sizeof(uint4);
    const uint4* const source = reinterpret_cast<const uint4*>(from);
    uint4* const target = reinterpret_cast<uint4*>(queue.remote);
#pragma unroll 4
    for (u64 i = threadIdx.x; i < whole; i += blockDim.x) target[i] = source[i];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  fence_system();
  put_word(queue.remote + at, value);
}
extern "C" __global__ void __launch_bounds__(1024)
    bare_ping_pong(Queue queue, Rounds rounds, u64 nbytes, u64 at, Outcome* outcome) {
  u64 began = 0;
  for (u32 round = 1; round <= rounds.warm + rounds.count; ++round) {
    const u32 value = rounds.base + round;
    if (rounds.first) put_barely(queue, nbytes, at, value);
    Status got = Status::ok;
    if (threadIdx.x == 0) got = await_word(queue.local + at, value);
    if (__syncthreads_or(got != Status::ok)) return note(outcome->status, static_cast<u64>(got));
    if (!rounds.first) put_barely(queue, nbytes, at, value);
    began = begin_of(rounds, round, began);
  }
  if (threadIdx.x == 0) outcome->took = nanoseconds_now() - began;
}

__device__ inline u64 thread_of_grid() { return u64{blockIdx.x} * blockDim.x + threadIdx.x; }

// Each thread puts 8 bytes `count` times, to a new place each time as long as there is one: from
// memory, or from a register.
struct Places {
  u64 at;
  u64 first;
  u64 stride;  // over all threads
  u64 end;
  __device__ void go_on() {
    at += stride;
    if (at >= end) at = first;
  }
};
__device__ inline Places places_of_thread(const Queue& queue) {
  const u64 first = thread_of_grid() * sizeof(u64);
  return {first, first, u64{gridDim.x} * blockDim.x * sizeof(u64), outbox(queue)};
}
extern "C" __global__ void __launch_bounds__(512)
    put_many(Queue queue, u32 times, Outcome* outcome) {
  Places places = places_of_thread(queue);
  Status got = Status::ok;
  for (u32 i = 0; i < times && got == Status::ok; ++i) {
    got = put(queue, places.at, outbox(queue) + places.at, sizeof(u64));
    places.go_on();
  }
  if (got != Status::ok) note(outcome->status, static_cast<u64>(got));
}
extern "C" __global__ void __launch_bounds__(512)
    put_values(Queue queue, u32 times, Outcome* outcome) {
  Places places = places_of_thread(queue);
  Status got = Status::ok;
  for (u32 i = 0; i < times && got == Status::ok; ++i) {
    got = put_value(queue, places.at, places.first + i);
    places.go_on();
  }
  if (got != Status::ok) note(outcome->status, static_cast<u64>(got));
}

// The same with a ring, timed.
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

// All blocks together, one piece at a time.
extern "C" __global__ void __launch_bounds__(1024)
    put_wide(Queue queue, u64 nbytes, u64 piece, Outcome* outcome) {
  Status got = Status::ok;
  for (u64 at = blockIdx.x * piece; at < nbytes && got == Status::ok; at += gridDim.x * piece) {
    const u64 left = nbytes - at;
    got = put<Block>(queue, at, at, left < piece ? left : piece);
  }
  if (got != Status::ok) note(outcome->status, static_cast<u64>(got));
}

// The same with only streaming loads and stores of 16 bytes: the bound for a kernel.
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
