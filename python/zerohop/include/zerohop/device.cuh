// Communication by kernels: put, get, notify and wait.
//
//   #include <zerohop/device.cuh>   // nvcc or NVRTC: -I$(python -c "import zerohop;
//   print(zerohop.include_dir())")
//
//   __global__ void produce(zerohop::device::Queue queue) {
//     ... write the local array ...
//     zerohop::device::put_notify<zerohop::device::Block>(queue, 0, 0, nbytes, /*slot*/ 7,
//     /*value*/ 1);
//   }
//   __global__ void consume(zerohop::device::Board board) {
//     using namespace zerohop::device;
//     if (wait_notify<Block>(board, 7, /*nanoseconds*/ 1000000000) != Status::ok) return;
//     ... the data is there ...
//   }
//
// A Queue is one local array, one array of a Peer and the way between them; a Board is the slots of
// this process. Both are plain values, made on the host by Peer.device_queue() and
// Endpoint.device_board(). A team makes each call: a Thread, a Warp or a Block, all of whose
// threads call it with the same arguments and get the same Status; nothing traps. Offsets are bytes
// into the arrays and are checked against them. Several teams and kernels may use one Queue.
//
// The calls work in one of two ways. If the Peer's memory is mapped (one host, NVLink or PCIe)
// the threads of the team copy, and the operation is done when the call returns.
// Otherwise the first thread writes entries into a ring, which an adapter or a host thread
// executes. Then the source must not change, and the data of a get is not there, until flush() or
// wait() has returned ok; threads of one warp that call at the same time post together.
//
// Order. Writes of the team's threads to the local array are sent only if the team
// has synchronised between them and the call. Puts have no order among each other. notify() and
// put_notify() make all earlier puts of the calling team with this queue visible before the value,
// to GPUs and CPUs, and also the puts of other teams with it that the team has synchronised with
// (mapped: a system fence by the first thread, after the team's barrier; PTX memory model:
// cumulativity. A ring: entries are executed in order). A wait that finds a value acquires
// it: all threads of the team then see the data.
#pragma once

#if defined(__cplusplus) && __cplusplus < 201703L
#error "zerohop/device.cuh needs C++17: -std=c++17"
#endif

#include "zerohop/check.cuh"
#include "zerohop/checked.cuh"
#include "zerohop/mapped.cuh"
#include "zerohop/ring.cuh"
#include "zerohop/values.cuh"
#include "zerohop/wait.cuh"

namespace zerohop::device {

// The timeout of the queue (Peer.device_queue).
constexpr u64 kPatience = ~u64{0};

// Copies `nbytes` from the local array into the remote one. After flush(), or wait() for the
// ticket, the source may be written again and the data is in place; a notification can then
// announce that to the Peer. Status: ok, not_allowed, out_of_bounds; for a ring timed_out (it has
// no room), failed: nothing or a part was begun.
template <typename Team = Thread>
__device__ Status put(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                      Ticket* ticket = nullptr) {
  const Status status = check_move(queue, kPut, remote_offset, local_offset, nbytes);
  if (status != Status::ok) return status;
  if (queue.way == Way::ring) {
    return ring::put<Team>(queue, remote_offset, local_offset, nbytes, ticket);
  }
  mapped::put<Team>(queue, remote_offset, local_offset, nbytes);
  if (ticket != nullptr) *ticket = {};
  return status;
}

// Puts one element, from the calling thread: T of 1, 2, 4 or 8 bytes, at an offset that is a
// multiple of its size. Status: as put(), misaligned.
template <typename T>
__device__ Status put_value(const Queue& queue, u64 remote_offset, T value,
                            Ticket* ticket = nullptr) {
  const Status status = check_element(queue, kPut, remote_offset, sizeof(T));
  if (status != Status::ok) return status;
  const Word<T> word = to_word(value);
  if (queue.way == Way::ring) {
    return ring::put_value(queue, remote_offset, word, sizeof word, ticket);
  }
  *const_cast<volatile Word<T>*>(mapped::element<Word<T>>(queue, remote_offset)) = word;
  if (ticket != nullptr) *ticket = {};
  return status;
}

// Copies from the remote array into the local one. The data is there after flush(), or wait() for
// the ticket; if the memory is mapped, once the call has returned and the team has synchronised.
// Status: as put().
template <typename Team = Thread>
__device__ Status get(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                      Ticket* ticket = nullptr) {
  const Status status = check_move(queue, kGet, remote_offset, local_offset, nbytes);
  if (status != Status::ok) return status;
  if (queue.way == Way::ring) {
    return ring::get<Team>(queue, remote_offset, local_offset, nbytes, ticket);
  }
  mapped::get<Team>(queue, remote_offset, local_offset, nbytes);
  if (ticket != nullptr) *ticket = {};
  return status;
}

// Puts `value`, not 0, into a slot of the Peer's board, after the team's puts (see Order).
// Use one writer per slot: a later value replaces one that nobody has taken. Status: ok, bad_slot;
// for a ring timed_out, failed.
template <typename Team = Thread>
__device__ Status notify(const Queue& queue, u32 slot, u32 value, Ticket* ticket = nullptr) {
  const Status status = check_note(queue, slot, value);
  if (status != Status::ok) return status;
  if (queue.way == Way::ring) return ring::notify<Team>(queue, slot, value, ticket);
  Team::sync();
  if (Team::rank() == 0) mapped::put_note(queue, slot, value, count_note(queue));
  if (ticket != nullptr) *ticket = {};
  return status;
}

// put() and notify() in one. Status: ok, not_allowed, out_of_bounds, bad_slot; for a ring
// timed_out, failed.
template <typename Team = Thread>
__device__ Status put_notify(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                             u32 slot, u32 value, Ticket* ticket = nullptr) {
  Status status = check_move(queue, kPut, remote_offset, local_offset, nbytes);
  if (status == Status::ok) status = check_note(queue, slot, value);
  if (status != Status::ok) return status;
  if (queue.way == Way::ring) {
    return ring::put_notify<Team>(queue, remote_offset, local_offset, nbytes, slot, value, ticket);
  }
  mapped::put_notify<Team>(queue, remote_offset, local_offset, nbytes, slot, value);
  if (ticket != nullptr) *ticket = {};
  return status;
}

// Waits until the operation of the ticket, and all before it, are done, at most that long (0: one
// check). Status: ok, timed_out, failed (an entry of the ring has failed; DeviceQueue.error has the
// reason).
template <typename Team = Thread>
__device__ Status wait(const Queue& queue, Ticket ticket, u64 nanoseconds = kPatience) {
  if (queue.way == Way::ring) return ring::wait<Team>(queue, &ticket, nanoseconds);
  mapped::flush<Team>();
  return Status::ok;
}

// The same for all operations that the team has begun with this queue.
template <typename Team = Thread>
__device__ Status flush(const Queue& queue, u64 nanoseconds = kPatience) {
  if (queue.way == Way::ring) return ring::wait<Team>(queue, nullptr, nanoseconds);
  mapped::flush<Team>();
  return Status::ok;
}

// Adds to a word of the remote array, T is an integer of 4 or 8 bytes, and sets `old` to its old
// value. Called by one thread, which waits for it. If mapped, atomic with respect to atomics of
// CPUs and other GPUs; with a ring, to those of adapters as they guarantee (Peer.fetch_add). Orders
// nothing. Status: ok, not_allowed (also if the GPUs have no native atomics between them, and for 4
// bytes with a ring), out_of_bounds, misaligned; for a ring timed_out (it may still happen),
// failed.
template <typename T>
__device__ Status fetch_add(const Queue& queue, u64 offset, T value, T* old = nullptr) {
  Status status = check_atomic(queue, offset, sizeof(T));
  if (status != Status::ok) return status;
  Word<T> before = 0;
  if (queue.way == Way::ring) {
    u64 whole = 0;
    status = ring::fetch_add(queue, offset, to_word(value), whole);
    before = static_cast<Word<T>>(whole);
  } else {
    before = mapped::fetch_add(queue, offset, to_word(value));
  }
  if (old != nullptr && status == Status::ok) *old = from_word<T>(before);
  return status;
}

// Sets a word to `desired` if it is `expected`; everything else as in fetch_add().
template <typename T>
__device__ Status compare_swap(const Queue& queue, u64 offset, T expected, T desired,
                               T* old = nullptr) {
  Status status = check_atomic(queue, offset, sizeof(T));
  if (status != Status::ok) return status;
  Word<T> before = 0;
  if (queue.way == Way::ring) {
    u64 whole = 0;
    status = ring::compare_swap(queue, offset, to_word(expected), to_word(desired), whole);
    before = static_cast<Word<T>>(whole);
  } else {
    before = mapped::compare_swap(queue, offset, to_word(expected), to_word(desired));
  }
  if (old != nullptr && status == Status::ok) *old = from_word<T>(before);
  return status;
}

// Waits until one of `count` slots from `first` is not empty, at most that long (0: one check).
// Returns the slot and its value, and empties it as `reset` says. Of several slots it takes the
// first one. Values from CPUs are found a few microseconds later than those from GPUs. Status: ok,
// timed_out, bad_slot, closed (the Endpoint was closed, or no peer is left that could notify).
template <typename Team = Thread>
__device__ Status wait_notify_any(const Board& board, u32 first, u32 count, u64 nanoseconds,
                                  u32* slot = nullptr, u32* value = nullptr,
                                  Reset reset = Reset::yes) {
  const u32 end = board.first + board.slots;
  if (count == 0 || first < board.first || first >= end || count > end - first) {
    return Status::bad_slot;
  }
  const waiting::Found found =
      Team::by_first([&] { return waiting::wait(board, {first, count}, reset, nanoseconds); });
  if (slot != nullptr) *slot = found.slot;
  if (value != nullptr) *value = found.value;
  return found.status;
}

// The same for one slot.
template <typename Team = Thread>
__device__ Status wait_notify(const Board& board, u32 slot, u64 nanoseconds, u32* value = nullptr,
                              Reset reset = Reset::yes) {
  return wait_notify_any<Team>(board, slot, 1, nanoseconds, nullptr, value, reset);
}

// put_notify() with the CRC32C of the data as the value (1 for 0): the source is read twice, and
// must not change in between. A CPU that waits for it compares with zh.crc32c(array). Status: as
// put_notify().
template <typename Team = Thread>
__device__ Status put_notify_checked(const Queue& queue, u64 remote_offset, u64 local_offset,
                                     u64 nbytes, u32 slot, Ticket* ticket = nullptr) {
  const Status status = check_move(queue, kPut, remote_offset, local_offset, nbytes);
  if (status != Status::ok) return status;
  Team::sync();
  const u32 checksum = crc32c<Team>(queue.local + local_offset, nbytes);
  return put_notify<Team>(queue, remote_offset, local_offset, nbytes, slot, crc::as_value(checksum),
                          ticket);
}

// Waits for that, and checks the received data: `nbytes` at an address of this GPU. Status: as
// wait_notify(), corrupt (the data differs from what was sent).
template <typename Team = Thread>
__device__ Status wait_notify_checked(const Board& board, u32 slot, const void* address, u64 nbytes,
                                      u64 nanoseconds) {
  u32 value = 0;
  const Status status = wait_notify<Team>(board, slot, nanoseconds, &value);
  if (status != Status::ok) return status;
  Team::sync();
  const u32 checksum = crc32c<Team>(reinterpret_cast<u64>(address), nbytes);
  return crc::as_value(checksum) == value ? Status::ok : Status::corrupt;
}

// Empties a slot and returns its value; 0: it was empty, or another thread took the value.
__device__ inline u32 reset_notify(const Board& board, u32 slot) {
  u32 value = 0;
  wait_notify<Thread>(board, slot, 0, &value);
  return value;
}

// Returns the value of a slot, without changing it; 0: empty.
__device__ inline u32 peek_notify(const Board& board, u32 slot) {
  u32 value = 0;
  wait_notify<Thread>(board, slot, 0, &value, Reset::no);
  return value;
}

}  // namespace zerohop::device
