// The way of a ring: calls are written as entries in the mlx5 layout, which an
// adapter or a host thread (the proxy) executes. The two differ only in addresses and keys,
// which the host fills in.
//
// `Words`, and how threads share the ring: see send_ring.h. `Poster` has post(), wait() and all()
// of RingUser.
#pragma once

#include "zerohop/send_ring.h"

namespace zerohop::device {

// In GPU memory, next to its Queue.
struct RingWay {
  SendRing ring;
  u64 local = 0;  // the Queue's local array, as addressed by the adapter or host
  u64 remote = 0;
  u64 notes = 0;
  u64 results = 0;  // one place of 8 bytes per block, for the old values of atomics, and one behind
  u64 claims = 0;   // 32 bits of this GPU's memory for each; not 0: a thread waits for it
  u64 patience = 0;  // nanoseconds: for calls without a bound
  u32 results_key = 0;
  u32 local_key = 0;
  u32 remote_key = 0;
  u32 notes_key = 0;
  // 1: the remote array lies on a GPU, and notes in host memory. A read between the two keeps them
  // in order: on PCIe it stays behind the writes to the array, and the note waits for it.
  u32 flushes = 0;
  // 1: what an adapter has written is not visible to running kernels once it has completed. It
  // reads a byte of that again before it does.
  u32 dumps = 0;
};

constexpr u64 kMostOfEntry = u64{1} << 30;  // most bytes of one entry

// The entries of a call. Offsets have been checked.
class RingEntries {
 public:
  explicit ZEROHOP_BOTH RingEntries(const RingWay& way) : way_(way) {}

  ZEROHOP_BOTH mlx5::Block move(u32 index, u32 flags, mlx5::Opcode opcode, u64 remote_offset,
                                u64 local_offset, u32 nbytes) const {
    return mlx5::move(head(index, flags), opcode, remote(remote_offset),
                      {way_.local + local_offset, way_.local_key}, nbytes);
  }
  ZEROHOP_BOTH mlx5::Block value(u32 index, u32 flags, u64 remote_offset, const void* data,
                                 u32 nbytes) const {
    return mlx5::write_inline(head(index, flags), remote(remote_offset), data, nbytes);
  }
  // A value into a slot, as CPUs put it; ordered after everything posted before, even on networks
  // and buses that do not keep order.
  ZEROHOP_BOTH mlx5::Block note(u32 index, u32 flags, u32 slot, u32 value) const {
    const u32 order = way_.flushes != 0 ? mlx5::kFence : mlx5::kStrongOrder;
    return mlx5::write_inline(head(index, flags | order),
                              {way_.notes + slot * sizeof value, way_.notes_key}, &value,
                              sizeof value);
  }
  ZEROHOP_BOTH mlx5::Block dump(u32 index, u32 flags, u64 local_offset) const {
    return mlx5::dump(head(index, flags | mlx5::kFence),
                      {way_.local + local_offset, way_.local_key}, 1);
  }
  // A byte of the remote array, into the place behind those of old values.
  ZEROHOP_BOTH mlx5::Block flush(u32 index, u32 flags) const {
    return mlx5::move(head(index, flags), mlx5::kRead, remote(0), result(way_.ring.blocks), 1);
  }
  ZEROHOP_BOTH mlx5::Block add(u32 index, u32 flags, u64 offset, u32 place, u64 value) const {
    return mlx5::fetch_add(head(index, flags), remote(offset), result(place), value);
  }
  ZEROHOP_BOTH mlx5::Block swap(u32 index, u32 flags, u64 offset, u32 place, u64 expected,
                                u64 desired) const {
    return mlx5::compare_swap(head(index, flags), remote(offset), result(place), expected, desired);
  }

 private:
  ZEROHOP_BOTH mlx5::Head head(u32 index, u32 flags) const {
    return {way_.ring.queue_pair, index, flags};
  }
  ZEROHOP_BOTH mlx5::Range remote(u64 offset) const {
    return {way_.remote + offset, way_.remote_key};
  }
  ZEROHOP_BOTH mlx5::Range result(u32 place) const {
    return {way_.results + place * sizeof(u64), way_.results_key};
  }

  const RingWay& way_;
};

// Each call is made by one thread. A Ticket covers the entries of its call. The data in the local
// array must be there before, and stay until the ticket is done.
template <typename Words, typename Poster = RingUser<Words>>
class RingCalls {
 public:
  explicit ZEROHOP_BOTH RingCalls(const RingWay& way)
      : way_(way), entries_(way), poster_(way.ring) {}

  ZEROHOP_BOTH Status put(u64 remote_offset, u64 local_offset, u64 nbytes, Ticket& ticket) const {
    return move(mlx5::kWrite, remote_offset, local_offset, nbytes, ticket);
  }
  ZEROHOP_BOTH Status get(u64 remote_offset, u64 local_offset, u64 nbytes, Ticket& ticket) const {
    return move(mlx5::kRead, remote_offset, local_offset, nbytes, ticket);
  }
  // At most mlx5::kMostInline bytes, which need not stay.
  ZEROHOP_BOTH Status put_value(u64 remote_offset, const void* data, u32 nbytes,
                                Ticket& ticket) const {
    const auto fill = [&](u32 index, u32 flags, u32) {
      return entries_.value(index, flags, remote_offset, data, nbytes);
    };
    return poster_.post(1, way_.patience, fill, ticket);
  }
  // Ordered after everything posted before.
  ZEROHOP_BOTH Status notify(u32 slot, u32 value, Ticket& ticket) const {
    const auto fill = [&](u32 index, u32 flags, u32 i) {
      return i < way_.flushes ? entries_.flush(index, flags)
                              : entries_.note(index, flags, slot, value);
    };
    return poster_.post(1 + way_.flushes, way_.patience, fill, ticket);
  }
  ZEROHOP_BOTH Status put_notify(u64 remote_offset, u64 local_offset, u64 nbytes, u32 slot,
                                 u32 value, Ticket& ticket) const {
    if (nbytes == 0) return notify(slot, value, ticket);
    const u64 before = (nbytes - 1) / kMostOfEntry * kMostOfEntry;
    if (before > 0) {
      const Status status = move(mlx5::kWrite, remote_offset, local_offset, before, ticket);
      if (status != Status::ok) return status;
    }
    const auto fill = [&](u32 index, u32 flags, u32 i) {
      if (i > way_.flushes) return entries_.note(index, flags, slot, value);
      if (i > 0) return entries_.flush(index, flags);
      return entries_.move(index, flags, mlx5::kWrite, remote_offset + before,
                           local_offset + before, static_cast<u32>(nbytes - before));
    };
    return poster_.post(2 + way_.flushes, way_.patience, fill, ticket);
  }
  // 64-bit atomics. Waits for the old value.
  ZEROHOP_BOTH Status fetch_add(u64 offset, u64 value, u64& old) const {
    const auto make = [&](u32 index, u32 flags, u32 place) {
      return entries_.add(index, flags, offset, place, value);
    };
    return fetch(make, old);
  }
  ZEROHOP_BOTH Status compare_swap(u64 offset, u64 expected, u64 desired, u64& old) const {
    const auto make = [&](u32 index, u32 flags, u32 place) {
      return entries_.swap(index, flags, offset, place, expected, desired);
    };
    return fetch(make, old);
  }

  ZEROHOP_BOTH Status wait(Ticket ticket, u64 nanoseconds) const {
    return poster_.wait(ticket, nanoseconds);
  }
  ZEROHOP_BOTH Ticket all() const { return poster_.all(); }

 private:
  ZEROHOP_BOTH Status move(mlx5::Opcode opcode, u64 remote_offset, u64 local_offset, u64 nbytes,
                           Ticket& ticket) const {
    if (nbytes == 0) ticket = poster_.all();
    for (u64 done = 0; done < nbytes; done += kMostOfEntry) {
      const u64 left = nbytes - done;
      const auto part = static_cast<u32>(left < kMostOfEntry ? left : kMostOfEntry);
      const u32 dumps = opcode == mlx5::kRead ? way_.dumps : 0;
      const auto fill = [&](u32 index, u32 flags, u32 i) {
        return i > 0 ? entries_.dump(index, flags, local_offset + done)
                     : entries_.move(index, flags, opcode, remote_offset + done,
                                     local_offset + done, part);
      };
      const Status status = poster_.post(1 + dumps, way_.patience, fill, ticket);
      if (status != Status::ok) return status;
    }
    return Status::ok;
  }

  template <typename Make>
  ZEROHOP_BOTH Status fetch(Make make, u64& old) const {
    u32 place = 0;
    Status status = claim(place);
    if (status != Status::ok) return status;
    Ticket ticket;
    const auto fill = [&](u32 index, u32 flags, u32) { return make(index, flags, place); };
    status = poster_.post(1, way_.patience, fill, ticket);
    const bool posted = status == Status::ok;
    if (posted) status = poster_.wait(ticket, way_.patience);
    if (status == Status::ok) old = Words::arrival(way_.results + place * sizeof(u64));
    // A value that may still arrive keeps its place.
    if (!posted || status != Status::timed_out) Words::store(claim_of(place), 0);
    return status;
  }
  // A place for an old value that no other thread uses. Status: ok, timed_out.
  ZEROHOP_BOTH Status claim(u32& place) const {
    const u64 began = Words::nanoseconds();
    const u32 first = poster_.all().end;  // usually different for each thread
    for (u32 i = 0;; ++i) {
      place = (first + i) & (way_.ring.blocks - 1);
      if (Words::swap(claim_of(place), 0, 1)) return Status::ok;
      if (Words::nanoseconds() - began >= way_.patience) return Status::timed_out;
    }
  }
  ZEROHOP_BOTH u64 claim_of(u32 place) const { return way_.claims + place * sizeof(u32); }

  const RingWay& way_;
  const RingEntries entries_;
  const Poster poster_;
};

}  // namespace zerohop::device
