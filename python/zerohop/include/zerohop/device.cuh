// Communication by kernels themselves: put, get, notify and wait, with no CPU in the way.
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
// Endpoint.device_board(). Each call is made by a team: a Thread, a Warp or a Block, all of whose
// threads call it with the same arguments and get the same Status; nothing traps. Offsets are bytes
// into the arrays and are checked against them. Several teams and kernels may use one Queue.
//
// Order. A put is done by the threads of its team: what they wrote to the local array before is
// sent only if the team has synchronised since. Puts are in no order among each other. notify() and
// put_notify() make everything that the calling team has put before visible ahead of the value, to
// GPUs and CPUs, and also what other teams have put that it has synchronised with (a fence of the
// system by the first thread, behind the team's barrier; PTX memory model: cumulativity). A wait
// that finds a value acquires it: all threads of the team then see that data.
#pragma once

#if defined(__cplusplus) && __cplusplus < 201703L
#error "zerohop/device.cuh needs C++17: -std=c++17"
#endif

#include "zerohop/check.cuh"
#include "zerohop/mapped.cuh"
#include "zerohop/wait.cuh"

namespace zerohop::device {

// Copies `nbytes` from the local array into the remote one. The source may be written again when
// the call has returned and the team has synchronised; that the data is placed is said by flush()
// or by a notification. Status: ok, not_allowed, out_of_bounds.
template <typename Team = Thread>
__device__ Status put(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes) {
  const Status status = check_move(queue, kPut, remote_offset, local_offset, nbytes);
  if (status == Status::ok) mapped::put<Team>(queue, remote_offset, local_offset, nbytes);
  return status;
}

// One element, by the calling thread: T of 1, 2, 4 or 8 bytes, at an offset that is a multiple of
// its size. Status: as put(), misaligned.
template <typename T>
__device__ Status put_value(const Queue& queue, u64 remote_offset, T value) {
  const Status status = check_element(queue, kPut, remote_offset, sizeof(T));
  if (status == Status::ok) {
    *const_cast<volatile T*>(mapped::element<T>(queue, remote_offset)) = value;
  }
  return status;
}

// Copies from the remote array into the local one: there when the call has returned and the team
// has synchronised. Status: ok, not_allowed, out_of_bounds.
template <typename Team = Thread>
__device__ Status get(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes) {
  const Status status = check_move(queue, kGet, remote_offset, local_offset, nbytes);
  if (status == Status::ok) mapped::get<Team>(queue, remote_offset, local_offset, nbytes);
  return status;
}

// Puts `value`, not 0, into a slot of the Peer's board, behind what the team has put (see Order).
// One writer a slot: a later value replaces one that nobody has taken. Status: ok, bad_slot.
template <typename Team = Thread>
__device__ Status notify(const Queue& queue, u32 slot, u32 value) {
  const Status status = check_note(queue, slot, value);
  if (status != Status::ok) return status;
  Team::sync();
  if (Team::rank() == 0) {
    mapped::put_note(queue, slot, make_note(value, mapped::next_tag(queue)));
  }
  return status;
}

// put() and notify() in one. Status: ok, not_allowed, out_of_bounds, bad_slot.
template <typename Team = Thread>
__device__ Status put_notify(const Queue& queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                             u32 slot, u32 value) {
  Status status = check_move(queue, kPut, remote_offset, local_offset, nbytes);
  if (status == Status::ok) status = check_note(queue, slot, value);
  if (status != Status::ok) return status;
  mapped::put_notify<Team>(queue, remote_offset, local_offset, nbytes, slot, value);
  return status;
}

// All that the team has put with this queue is placed when it returns. Status: ok.
template <typename Team = Thread>
__device__ Status flush(const Queue&) {
  mapped::flush<Team>();
  return Status::ok;
}

// Adds to a word of the remote array, T is u32 or u64, and sets `old` to what was there. By the
// calling thread; atomic with atomics of CPUs and other GPUs; orders nothing. Status: ok,
// not_allowed (also where the GPUs have no native atomics between them), out_of_bounds, misaligned.
template <typename T>
__device__ Status fetch_add(const Queue& queue, u64 offset, T value, T* old = nullptr) {
  const Status status = check_element(queue, kAtomics, offset, sizeof(T));
  if (status != Status::ok) return status;
  const T before = mapped::fetch_add(queue, offset, value);
  if (old != nullptr) *old = before;
  return status;
}

// Sets a word to `desired` where it is `expected`; otherwise as fetch_add().
template <typename T>
__device__ Status compare_swap(const Queue& queue, u64 offset, T expected, T desired,
                               T* old = nullptr) {
  const Status status = check_element(queue, kAtomics, offset, sizeof(T));
  if (status != Status::ok) return status;
  const T before = mapped::compare_swap(queue, offset, expected, desired);
  if (old != nullptr) *old = before;
  return status;
}

// Waits until one of `count` slots from `first` on is not empty, at most that long (0: one look).
// Sets which one it was and its value, and empties it as `reset` says. Of several it is the first
// one. What CPUs put is found a few microseconds later than what GPUs do. Status: ok, timed_out,
// bad_slot, closed (the Endpoint was closed, or no peer is left that could notify).
template <typename Team = Thread>
__device__ Status wait_notify_any(const Board& board, u32 first, u32 count, u64 nanoseconds,
                                  u32* slot = nullptr, u32* value = nullptr,
                                  Reset reset = Reset::yes) {
  const u32 end = board.first + board.slots;
  if (count == 0 || first < board.first || first >= end || count > end - first) {
    return Status::bad_slot;
  }
  Status status = Status::ok;
  waiting::Found found;
  if (Team::rank() == 0) {
    status = waiting::wait(board, {first, count}, reset, nanoseconds, found);
  }
  status = static_cast<Status>(Team::from_first(static_cast<int>(status)));
  if (slot != nullptr) *slot = Team::from_first(found.slot);
  if (value != nullptr) *value = Team::from_first(found.value);
  return status;
}

// The same for one slot.
template <typename Team = Thread>
__device__ Status wait_notify(const Board& board, u32 slot, u64 nanoseconds, u32* value = nullptr,
                              Reset reset = Reset::yes) {
  return wait_notify_any<Team>(board, slot, 1, nanoseconds, nullptr, value, reset);
}

// Empties a slot and returns what was in it; 0: nothing was, or another thread took it.
__device__ inline u32 reset_notify(const Board& board, u32 slot) {
  u32 value = 0;
  wait_notify<Thread>(board, slot, 0, &value);
  return value;
}

// What lies in a slot, which stays as it is; 0: nothing.
__device__ inline u32 peek_notify(const Board& board, u32 slot) {
  u32 value = 0;
  wait_notify<Thread>(board, slot, 0, &value, Reset::no);
  return value;
}

}  // namespace zerohop::device
