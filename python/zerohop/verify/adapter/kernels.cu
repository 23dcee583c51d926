// The kernels of `zerohop verify --adapter`. Every wait in them has a bound.
#include <zerohop/device.cuh>

using namespace zerohop::device;

constexpr u64 kPatienceNs = 2000000000;  // as bench/gda/kernels.py says of it
constexpr u32 kLooksOfWord = 1024;       // polls for each clock reading

// Set to zeros by the host before each launch.
struct Outcome {
  u64 status;  // a Status
  u64 took;    // nanoseconds
  u64 found;   // words that were wrong, or the round in which one was
};

__device__ inline u32 load_word(u64 address) {
  return *reinterpret_cast<const volatile u32*>(address);
}

// Counts the words that are not `value`.
__device__ u64 count_others(u64 data, u64 nbytes, u32 value) {
  u64 wrong = 0;
  for (u64 at = 0; at < nbytes; at += sizeof(u32)) wrong += load_word(data + at) != value;
  return wrong;
}

// A word of the host's memory, which the host polls.
__device__ inline void tell_host(u64 address, u32 value) {
  *reinterpret_cast<volatile u32*>(address) = value;
  __threadfence_system();
}

// Spins on a word of this GPU's memory that the adapter writes, after `nbytes` of data before it.
// The host begins to write once `started` is 1.
extern "C" __global__ void spin(u64 word, u64 data, u64 nbytes, u32 value, u64 started,
                                Outcome* outcome) {
  const u64 began = nanoseconds_now();
  tell_host(started, 1);
  for (u32 looks = 1; acquire(word) != value; ++looks) {
    if (looks % kLooksOfWord == 0 && nanoseconds_now() - began > kPatienceNs) {
      outcome->status = static_cast<u64>(Status::timed_out);
      return;
    }
  }
  outcome->took = nanoseconds_now() - began;
  outcome->found = count_others(data, nbytes, value);
}

// Takes notifications of values `first` to `last` from a slot, checks that their data is there, and
// tells the host each round by a word of the host's memory.
extern "C" __global__ void hear(Board board, u32 slot, u64 data, u64 nbytes, u32 first, u32 last,
                                u64 heard, Outcome* outcome) {
  const u64 began = nanoseconds_now();
  for (u32 round = first; round <= last; ++round) {
    u32 value = 0;
    const Status got = wait_notify<Thread>(board, slot, kPatienceNs, &value);
    const bool wrong = value != round || count_others(data, nbytes, round) != 0;
    if (got != Status::ok || wrong) {
      outcome->status = static_cast<u64>(got);
      outcome->found = round;
      return;
    }
    tell_host(heard, round);
  }
  outcome->took = nanoseconds_now() - began;
}

// Puts the local array into the remote one, `piece` bytes a request, with a notification behind.
extern "C" __global__ void drive(Queue queue, u64 nbytes, u64 piece, u32 slot, u32 value,
                                 Outcome* outcome) {
  const u64 began = nanoseconds_now();
  Status got = Status::ok;
  for (u64 at = 0; at < nbytes && got == Status::ok; at += piece) {
    const u64 left = nbytes - at;
    got = put(queue, at, at, left < piece ? left : piece);
  }
  if (got == Status::ok) got = notify(queue, slot, value);
  if (got == Status::ok) got = flush(queue, kPatienceNs);
  outcome->status = static_cast<u64>(got);
  outcome->took = nanoseconds_now() - began;
}
