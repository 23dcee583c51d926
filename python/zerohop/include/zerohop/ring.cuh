// The way of a ring, for teams: the first thread posts for all. Posting is a call, not inlined:
// it needs many registers, and the ways that copy then have more.
#pragma once

#include "zerohop/lanes.cuh"
#include "zerohop/ring_way.h"
#include "zerohop/team.cuh"

namespace zerohop::device::ring {

using Calls = RingCalls<GpuWords, LanePoster>;

struct Posted {
  Status status = Status::ok;
  Ticket ticket;
};
struct Fetched {
  u64 old = 0;
  Status status = Status::ok;
};

__device__ inline RingWay way_at(u64 ring) { return *reinterpret_cast<const RingWay*>(ring); }

__noinline__ __device__ inline Posted post_put(u64 ring, u64 remote_offset, u64 local_offset,
                                               u64 nbytes) {
  const RingWay way = way_at(ring);
  Posted posted;
  posted.status = Calls(way).put(remote_offset, local_offset, nbytes, posted.ticket);
  return posted;
}
__noinline__ __device__ inline Posted post_get(u64 ring, u64 remote_offset, u64 local_offset,
                                               u64 nbytes) {
  const RingWay way = way_at(ring);
  Posted posted;
  posted.status = Calls(way).get(remote_offset, local_offset, nbytes, posted.ticket);
  return posted;
}
__noinline__ __device__ inline Posted post_value(u64 ring, u64 remote_offset, u64 word,
                                                 u32 nbytes) {
  const RingWay way = way_at(ring);
  Posted posted;
  posted.status = Calls(way).put_value(remote_offset, &word, nbytes, posted.ticket);
  return posted;
}
__noinline__ __device__ inline Posted post_note(u64 ring, u32 slot, u32 value) {
  const RingWay way = way_at(ring);
  Posted posted;
  posted.status = Calls(way).notify(slot, value, posted.ticket);
  return posted;
}
__noinline__ __device__ inline Posted post_put_note(u64 ring, u64 remote_offset, u64 local_offset,
                                                    u64 nbytes, u32 slot, u32 value) {
  const RingWay way = way_at(ring);
  Posted posted;
  posted.status =
      Calls(way).put_notify(remote_offset, local_offset, nbytes, slot, value, posted.ticket);
  return posted;
}
// null: for all that was posted. nanoseconds: ~0: the timeout of the queue.
__noinline__ __device__ inline Status wait_for(u64 ring, const Ticket* ticket, u64 nanoseconds) {
  const RingWay way = way_at(ring);
  const Calls calls(way);
  return calls.wait(ticket != nullptr ? *ticket : calls.all(),
                    nanoseconds == ~u64{0} ? way.patience : nanoseconds);
}
__noinline__ __device__ inline Fetched add_and_fetch(u64 ring, u64 offset, u64 value) {
  const RingWay way = way_at(ring);
  Fetched fetched;
  fetched.status = Calls(way).fetch_add(offset, value, fetched.old);
  return fetched;
}
__noinline__ __device__ inline Fetched swap_and_fetch(u64 ring, u64 offset, u64 expected,
                                                      u64 desired) {
  const RingWay way = way_at(ring);
  Fetched fetched;
  fetched.status = Calls(way).compare_swap(offset, expected, desired, fetched.old);
  return fetched;
}

// post() -> Posted, ordered after the writes of the team.
template <typename Team, typename Post>
__device__ Status by_first(Ticket* ticket, Post post) {
  const Posted posted = Team::by_first(post);
  if (ticket != nullptr) *ticket = posted.ticket;
  return posted.status;
}

template <typename Team>
__device__ Status put(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                      Ticket* ticket) {
  return by_first<Team>(ticket,
                        [&] { return post_put(queue.ring, remote_offset, local_offset, nbytes); });
}

template <typename Team>
__device__ Status get(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                      Ticket* ticket) {
  return by_first<Team>(ticket,
                        [&] { return post_get(queue.ring, remote_offset, local_offset, nbytes); });
}

template <typename Team>
__device__ Status notify(const Queue& queue, u32 slot, u32 value, Ticket* ticket) {
  return by_first<Team>(ticket, [&] { return post_note(queue.ring, slot, value); });
}

template <typename Team>
__device__ Status put_notify(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                             u32 slot, u32 value, Ticket* ticket) {
  return by_first<Team>(ticket, [&] {
    return post_put_note(queue.ring, remote_offset, local_offset, nbytes, slot, value);
  });
}

// The first `nbytes` of a word.
__device__ inline Status put_value(const Queue& queue, u64 remote_offset, u64 word, u32 nbytes,
                                   Ticket* ticket) {
  return by_first<Thread>(ticket,
                          [&] { return post_value(queue.ring, remote_offset, word, nbytes); });
}

template <typename Team>
__device__ Status wait(const Queue& queue, const Ticket* ticket, u64 nanoseconds) {
  return by_first<Team>(
      nullptr, [&] { return Posted{wait_for(queue.ring, ticket, nanoseconds), Ticket()}; });
}

__device__ inline Status fetch_add(const Queue& queue, u64 offset, u64 value, u64& old) {
  const Fetched fetched = add_and_fetch(queue.ring, offset, value);
  old = fetched.old;
  return fetched.status;
}
__device__ inline Status compare_swap(const Queue& queue, u64 offset, u64 expected, u64 desired,
                                      u64& old) {
  const Fetched fetched = swap_and_fetch(queue.ring, offset, expected, desired);
  old = fetched.old;
  return fetched.status;
}

}  // namespace zerohop::device::ring
