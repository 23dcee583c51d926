// A send queue and its completion queue in the mlx5 layout, shared by many threads.
// Each thread reserves blocks, writes its entries, and submits them in the order of the
// reservations; the last of the active threads rings the doorbell for all of them.
// Any thread that polls takes completions, which makes room for all.
//
// `Words` is how words are accessed: by GPU threads (ring_words.cuh), or, in tests, by CPU threads.
//   load(u64 at) -> u32, store(u64 at, u32), swap(u64 at, u32 expected, u32 desired) -> bool: for
//     the ring's state; acquire, release, acquire. A release costs a GPU more than anything else,
//     because it waits for writes that are on their way to the host.
//   counts(u64 at) -> RingCounts: acquires each; they need not be of one moment.
//   arrival(u64 at) -> u64: acquires what the adapter wrote.
//   block(u64 at, const Block&), record(u64 at, u32), ring(u64 at, u64): read by the adapter;
//     each of the last two is visible after everything before it.
//   nanoseconds() -> u64, relax().
#pragma once

#include "zerohop/mlx5.h"
#include "zerohop/types.h"

namespace zerohop::device {

// Read by posting threads. Counts run on, modulo 2**32.
struct RingCounts {
  u32 reserved = 0;  // blocks
  u32 ready = 0;     // blocks whose entries are written, in order
  u32 done = 0;      // blocks that the adapter has completed
  u32 failed = 0;    // 1: an entry has failed; the queue executes nothing more
};

// In memory of the threads that share it, at an address that is a multiple of 16; initially zero.
struct RingState {
  RingCounts counts;
  u32 taken = 0;    // completions
  u32 polling = 0;  // 1: a thread takes completions
};

struct SendRing {
  u64 entries = 0;
  u64 record = 0;       // the doorbell record, 32 bits
  u64 doorbell = 0;     // the register, 64 bits; 0: the executing side reads the record
  u64 completions = 0;  // at least as many as blocks
  u64 consumed = 0;     // the doorbell record of completions, 32 bits
  u64 state = 0;        // a RingState
  u32 queue_pair = 0;
  u32 blocks = 0;  // powers of two
  u32 places = 0;
  u32 unused = 0;
};

template <typename Words>
class RingUser {
 public:
  ZEROHOP_BOTH explicit RingUser(const SendRing& ring) : ring_(ring) {}

  // Reserves `count` blocks, from `index`. Status: ok, timed_out, failed.
  ZEROHOP_BOTH Status reserve(u32 count, u64 nanoseconds, u32& index) const {
    const u64 began = Words::nanoseconds();
    for (;;) {
      const RingCounts seen = Words::counts(ring_.state);
      if (seen.failed != 0) return Status::failed;
      if (seen.reserved + count - seen.done <= ring_.blocks) {
        index = seen.reserved;
        if (!Words::swap(at(&RingCounts::reserved), index, index + count)) continue;
        return Status::ok;
      }
      poll();
      if (Words::nanoseconds() - began >= nanoseconds) return Status::timed_out;
      Words::relax();
    }
  }

  ZEROHOP_BOTH void write(u32 index, const mlx5::Block& block) const {
    Words::block(ring_.entries + u64{index & (ring_.blocks - 1)} * mlx5::kBlockBytes, block);
  }

  // Posts `count` entries of one block each; fill(index, flags, i) makes the i-th one. The last is
  // signaled. Status: as reserve().
  template <typename Fill>
  ZEROHOP_BOTH Status post(u32 count, u64 nanoseconds, Fill fill, Ticket& ticket) const {
    u32 index = 0;
    const Status status = reserve(count, nanoseconds, index);
    if (status != Status::ok) return status;
    mlx5::Block last;
    for (u32 i = 0; i < count; ++i) {
      last = fill(index + i, i + 1 == count ? mlx5::kSignaled : mlx5::kNone, i);
      write(index + i, last);
    }
    ticket = submit(index, count, last.doorbell());
    return Status::ok;
  }

  // Submits `count` blocks from `index`, which are all written; `doorbell`: of the last entry. Threads that have reserved
  // before submit before: nobody waits in between.
  ZEROHOP_BOTH Ticket submit(u32 index, u32 count, u64 doorbell) const {
    RingCounts seen;
    while ((seen = Words::counts(ring_.state)).ready != index) Words::relax();
    const u32 end = index + count;
    // A thread that reserves after this check finds `ready` below its own index, and rings itself.
    if (seen.reserved == end) {
      Words::record(ring_.record, mlx5::doorbell_record(end));
      if (ring_.doorbell != 0) Words::ring(ring_.doorbell, doorbell);
    }
    Words::store(at(&RingCounts::ready), end);
    return {end};
  }

  // Takes the available completions, unless another thread does.
  ZEROHOP_BOTH void poll() const {
    if (!Words::swap(at(&RingState::polling), 0, 1)) return;
    const u32 before = load(at(&RingState::taken));
    u32 taken = before;
    u32 done = load(at(&RingCounts::done));
    for (;; ++taken) {
      const mlx5::Completion found{Words::arrival(place(taken))};
      if (!found.is_there(taken / ring_.places)) break;
      done += (found.index() + 1 - done) & 0xffff;
      if (found.failed()) Words::store(at(&RingCounts::failed), 1);
    }
    if (taken != before) {
      Words::record(ring_.consumed, mlx5::swapped(taken & 0xffffff));
      Words::store(at(&RingState::taken), taken);
      Words::store(at(&RingCounts::done), done);
    }
    Words::store(at(&RingState::polling), 0);
  }

  // Everything submitted before.
  ZEROHOP_BOTH Ticket all() const { return {load(at(&RingCounts::ready))}; }

  // Whether the adapter has completed it, and everything before.
  ZEROHOP_BOTH bool is_done(Ticket ticket) const {
    return static_cast<int>(load(at(&RingCounts::done)) - ticket.end) >= 0;
  }

  // Status: ok, timed_out, failed: some entry has failed, perhaps a later one.
  ZEROHOP_BOTH Status wait(Ticket ticket, u64 nanoseconds) const {
    const u64 began = Words::nanoseconds();
    for (;;) {
      poll();
      if (is_done(ticket)) return failed() ? Status::failed : Status::ok;
      if (Words::nanoseconds() - began >= nanoseconds) return Status::timed_out;
      Words::relax();
    }
  }

 private:
  ZEROHOP_BOTH u64 at(u32 RingState::* word) const {
    return reinterpret_cast<u64>(&(reinterpret_cast<RingState*>(ring_.state)->*word));
  }
  ZEROHOP_BOTH u64 at(u32 RingCounts::* word) const {
    return reinterpret_cast<u64>(&(reinterpret_cast<RingState*>(ring_.state)->counts.*word));
  }
  ZEROHOP_BOTH static u32 load(u64 at) { return Words::load(at); }
  ZEROHOP_BOTH bool failed() const { return load(at(&RingCounts::failed)) != 0; }
  ZEROHOP_BOTH u64 place(u32 taken) const {  // the last 8 bytes
    return ring_.completions + u64{taken & (ring_.places - 1)} * mlx5::kBlockBytes + 56;
  }

  const SendRing ring_;  // a copy: in registers
};

}  // namespace zerohop::device
