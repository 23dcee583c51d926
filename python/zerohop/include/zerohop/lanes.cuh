// How threads of a warp post together: threads that call at the same time reserve once, write their
// entries side by side, and ring the doorbell once.
#pragma once

#include "zerohop/ring_words.cuh"
#include "zerohop/send_ring.h"

namespace zerohop::device {

class LanePoster {
 public:
  explicit __device__ LanePoster(const SendRing& ring) : ring_(ring), user_(ring) {}

  // As RingUser::post(). With several lanes only the last entry is signaled: each gets the ticket
  // of all.
  template <typename Fill>
  __device__ Status post(u32 count, u64 nanoseconds, Fill fill, Ticket& ticket) const {
    const u32 lanes = __match_any_sync(__activemask(), ring_.state + count);
    const u32 size = static_cast<u32>(__popc(lanes));
    const u32 rank = static_cast<u32>(__popc(lanes & below()));
    const u32 whole = size * count;
    u32 index = 0;
    Status status = Status::ok;
    if (rank == 0) status = user_.reserve(whole, nanoseconds, index);
    const int first = __ffs(static_cast<int>(lanes)) - 1;
    status = static_cast<Status>(__shfl_sync(lanes, static_cast<int>(status), first));
    if (status != Status::ok) return status;
    index = __shfl_sync(lanes, index, first);
    const u64 doorbell = write(index, rank * count, {count, whole}, fill);
    const u64 last = __shfl_sync(lanes, doorbell, 31 - __clz(static_cast<int>(lanes)));
    __syncwarp(lanes);  // all entries and their data are written
    if (rank == 0) user_.submit(index, whole, last);
    ticket.end = index + whole;
    return Status::ok;
  }
  __device__ Status wait(Ticket ticket, u64 nanoseconds) const {
    return user_.wait(ticket, nanoseconds);
  }
  __device__ Ticket all() const { return user_.all(); }

 private:
  struct Counts {
    u32 own;
    u32 whole;
  };
  // Writes the own entries from `at`; returns the doorbell value of the last one.
  template <typename Fill>
  __device__ u64 write(u32 index, u32 at, Counts counts, Fill fill) const {
    u64 doorbell = 0;
    for (u32 i = 0; i < counts.own; ++i) {
      const u32 flags = at + i + 1 == counts.whole ? mlx5::kSignaled : mlx5::kNone;
      const mlx5::Block block = fill(index + at + i, flags, i);
      user_.write(index + at + i, block);
      doorbell = block.doorbell();
    }
    return doorbell;
  }
  static __device__ u32 below() {
    u32 lanes;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lanes));
    return lanes;
  }

  const SendRing ring_;
  const RingUser<GpuWords> user_;
};

}  // namespace zerohop::device
