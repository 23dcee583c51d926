// The way of a ring, by teams: the first thread posts, for all.
#pragma once

#include "zerohop/lanes.cuh"
#include "zerohop/ring_way.h"
#include "zerohop/team.cuh"

namespace zerohop::device::ring {

using Calls = RingCalls<GpuWords, LanePoster>;

__device__ inline RingWay way_of(const Queue& queue) {
  return *reinterpret_cast<const RingWay*>(queue.ring);
}

// call(calls, ticket) -> Status, behind what the team has written.
template <typename Team, typename Call>
__device__ Status by_first(const Queue& queue, Ticket* ticket, Call call) {
  Team::sync();
  Status status = Status::ok;
  Ticket made;
  if (Team::rank() == 0) {
    const RingWay way = way_of(queue);
    status = call(Calls(queue, way), made);
  }
  if (ticket != nullptr) ticket->end = Team::from_first(made.end);
  return static_cast<Status>(Team::from_first(static_cast<int>(status)));
}

template <typename Team>
__device__ Status put(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                      Ticket* ticket) {
  return by_first<Team>(queue, ticket, [&](const Calls& calls, Ticket& made) {
    return calls.put(remote_offset, local_offset, nbytes, made);
  });
}

template <typename Team>
__device__ Status get(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                      Ticket* ticket) {
  return by_first<Team>(queue, ticket, [&](const Calls& calls, Ticket& made) {
    return calls.get(remote_offset, local_offset, nbytes, made);
  });
}

template <typename Team>
__device__ Status notify(const Queue& queue, u32 slot, u32 value, Ticket* ticket) {
  return by_first<Team>(queue, ticket, [&](const Calls& calls, Ticket& made) {
    return calls.notify(slot, value, made);
  });
}

template <typename Team>
__device__ Status put_notify(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                             u32 slot, u32 value, Ticket* ticket) {
  return by_first<Team>(queue, ticket, [&](const Calls& calls, Ticket& made) {
    return calls.put_notify(remote_offset, local_offset, nbytes, slot, value, made);
  });
}

__device__ inline Status put_value(const Queue& queue, u64 remote_offset, const void* data,
                                   u32 nbytes, Ticket* ticket) {
  return by_first<Thread>(queue, ticket, [&](const Calls& calls, Ticket& made) {
    return calls.put_value(remote_offset, data, nbytes, made);
  });
}

// nanoseconds: ~0, as long as the queue waits by itself.
template <typename Team>
__device__ Status wait(const Queue& queue, const Ticket* ticket, u64 nanoseconds) {
  return by_first<Team>(queue, nullptr, [&](const Calls& calls, Ticket&) {
    const u64 most = nanoseconds == ~u64{0} ? way_of(queue).patience : nanoseconds;
    return calls.wait(ticket != nullptr ? *ticket : calls.all(), most);
  });
}

__device__ inline Status fetch_add(const Queue& queue, u64 offset, u64 value, u64& old) {
  const RingWay way = way_of(queue);
  return Calls(queue, way).fetch_add(offset, value, old);
}
__device__ inline Status compare_swap(const Queue& queue, u64 offset, u64 expected, u64 desired,
                                      u64& old) {
  const RingWay way = way_of(queue);
  return Calls(queue, way).compare_swap(offset, expected, desired, old);
}

}  // namespace zerohop::device::ring
