// The calls of device.cuh for kernels that Numba compiles: zerohop.numba declares them and lets
// Numba link them. They follow Numba's convention for foreign functions: the result goes to
// the first argument (several results: a tuple), and the return value is 0, no exception. Queues
// and boards are passed by their address in GPU memory. Include it in one source of a kernel: it is
// not inline.
#pragma once

#include "zerohop/device.cuh"

namespace zerohop::device::numba {

// Tuples in Numba's layout.
struct Begun {
  Status status = Status::ok;
  Ticket ticket;
};
struct Taken {
  Status status = Status::ok;
  u32 value = 0;
};
struct Noticed {
  Status status = Status::ok;
  u32 slot = 0;
  u32 value = 0;
};
template <typename T>
struct Replaced {
  Status status = Status::ok;
  T old = 0;
};

__device__ inline const Queue& queue_at(u64 address) {
  return *reinterpret_cast<const Queue*>(address);
}
__device__ inline const Board& board_at(u64 address) {
  return *reinterpret_cast<const Board*>(address);
}

// The statement for the Team with zerohop.numba's number, and the return value. If the
// number is a constant, link-time optimisation drops the others. (No generic lambda: in functions
// with C linkage NVRTC 13.0 takes it for a host lambda.)
#define ZEROHOP_BY_TEAM(number, ...) \
  if ((number) == 0) {               \
    using Team = Thread;             \
    __VA_ARGS__;                     \
  } else if ((number) == 1) {        \
    using Team = Warp;               \
    __VA_ARGS__;                     \
  } else {                           \
    using Team = Block;              \
    __VA_ARGS__;                     \
  }                                  \
  return 0

extern "C" {

__device__ int zerohop_put(Status* said, u64 queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                           u32 team) {
  ZEROHOP_BY_TEAM(team, *said = put<Team>(queue_at(queue), remote_offset, local_offset, nbytes));
}
__device__ int zerohop_put_ticket(Begun* said, u64 queue, u64 remote_offset, u64 local_offset,
                                  u64 nbytes, u32 team) {
  *said = Begun();
  ZEROHOP_BY_TEAM(team, said->status = put<Team>(queue_at(queue), remote_offset, local_offset,
                                                 nbytes, &said->ticket));
}

__device__ int zerohop_get(Status* said, u64 queue, u64 remote_offset, u64 local_offset, u64 nbytes,
                           u32 team) {
  ZEROHOP_BY_TEAM(team, *said = get<Team>(queue_at(queue), remote_offset, local_offset, nbytes));
}
__device__ int zerohop_get_ticket(Begun* said, u64 queue, u64 remote_offset, u64 local_offset,
                                  u64 nbytes, u32 team) {
  *said = Begun();
  ZEROHOP_BY_TEAM(team, said->status = get<Team>(queue_at(queue), remote_offset, local_offset,
                                                 nbytes, &said->ticket));
}

__device__ int zerohop_notify(Status* said, u64 queue, u32 slot, u32 value, u32 team) {
  ZEROHOP_BY_TEAM(team, *said = notify<Team>(queue_at(queue), slot, value));
}
__device__ int zerohop_notify_ticket(Begun* said, u64 queue, u32 slot, u32 value, u32 team) {
  *said = Begun();
  ZEROHOP_BY_TEAM(team, said->status = notify<Team>(queue_at(queue), slot, value, &said->ticket));
}

__device__ int zerohop_put_notify(Status* said, u64 queue, u64 remote_offset, u64 local_offset,
                                  u64 nbytes, u32 slot, u32 value, u32 team) {
  ZEROHOP_BY_TEAM(team, *said = put_notify<Team>(queue_at(queue), remote_offset, local_offset,
                                                 nbytes, slot, value));
}
__device__ int zerohop_put_notify_ticket(Begun* said, u64 queue, u64 remote_offset,
                                         u64 local_offset, u64 nbytes, u32 slot, u32 value,
                                         u32 team) {
  *said = Begun();
  ZEROHOP_BY_TEAM(
      team, said->status = put_notify<Team>(queue_at(queue), remote_offset, local_offset, nbytes,
                                            slot, value, &said->ticket));
}

__device__ int zerohop_put_notify_checked(Status* said, u64 queue, u64 remote_offset,
                                          u64 local_offset, u64 nbytes, u32 slot, u32 team) {
  ZEROHOP_BY_TEAM(team, *said = put_notify_checked<Team>(queue_at(queue), remote_offset,
                                                         local_offset, nbytes, slot));
}
__device__ int zerohop_wait_notify_checked(Status* said, u64 board, u32 slot, u64 address,
                                           u64 nbytes, u64 nanoseconds, u32 team) {
  ZEROHOP_BY_TEAM(team, *said = wait_notify_checked<Team>(board_at(board), slot,
                                                          reinterpret_cast<const void*>(address),
                                                          nbytes, nanoseconds));
}

__device__ int zerohop_wait(Status* said, u64 queue, u32 ticket, u64 nanoseconds, u32 team) {
  ZEROHOP_BY_TEAM(team, *said = wait<Team>(queue_at(queue), Ticket{ticket}, nanoseconds));
}
__device__ int zerohop_flush(Status* said, u64 queue, u64 nanoseconds, u32 team) {
  ZEROHOP_BY_TEAM(team, *said = flush<Team>(queue_at(queue), nanoseconds));
}

__device__ int zerohop_wait_notify_any(Noticed* said, u64 board, u32 first, u32 count,
                                       u64 nanoseconds, u32 reset, u32 team) {
  *said = Noticed();
  ZEROHOP_BY_TEAM(team, said->status = wait_notify_any<Team>(board_at(board), first, count,
                                                             nanoseconds, &said->slot, &said->value,
                                                             static_cast<Reset>(reset)));
}
__device__ int zerohop_wait_notify(Taken* said, u64 board, u32 slot, u64 nanoseconds, u32 reset,
                                   u32 team) {
  *said = Taken();
  ZEROHOP_BY_TEAM(team, said->status = wait_notify<Team>(board_at(board), slot, nanoseconds,
                                                         &said->value, static_cast<Reset>(reset)));
}
__device__ int zerohop_reset_notify(u32* said, u64 board, u32 slot) {
  *said = reset_notify(board_at(board), slot);
  return 0;
}
__device__ int zerohop_peek_notify(u32* said, u64 board, u32 slot) {
  *said = peek_notify(board_at(board), slot);
  return 0;
}

// For each type, by Numba's name.
#define ZEROHOP_ELEMENT(T, name)                                                                 \
  __device__ int zerohop_put_value_##name(Status* said, u64 queue, u64 remote_offset, T value) { \
    *said = put_value(queue_at(queue), remote_offset, value);                                    \
    return 0;                                                                                    \
  }                                                                                              \
  __device__ int zerohop_put_value_ticket_##name(Begun* said, u64 queue, u64 remote_offset,      \
                                                 T value) {                                      \
    *said = Begun();                                                                             \
    said->status = put_value(queue_at(queue), remote_offset, value, &said->ticket);              \
    return 0;                                                                                    \
  }
#define ZEROHOP_WORD(T, name)                                                                      \
  __device__ int zerohop_fetch_add_##name(Replaced<T>* said, u64 queue, u64 offset, T value) {     \
    *said = Replaced<T>();                                                                         \
    said->status = fetch_add(queue_at(queue), offset, value, &said->old);                          \
    return 0;                                                                                      \
  }                                                                                                \
  __device__ int zerohop_compare_swap_##name(Replaced<T>* said, u64 queue, u64 offset, T expected, \
                                             T desired) {                                          \
    *said = Replaced<T>();                                                                         \
    said->status = compare_swap(queue_at(queue), offset, expected, desired, &said->old);           \
    return 0;                                                                                      \
  }
ZEROHOP_ELEMENT(signed char, int8)
ZEROHOP_ELEMENT(unsigned char, uint8)
ZEROHOP_ELEMENT(short, int16)
ZEROHOP_ELEMENT(unsigned short, uint16)
ZEROHOP_ELEMENT(int, int32)
ZEROHOP_ELEMENT(u32, uint32)
ZEROHOP_ELEMENT(long, int64)
ZEROHOP_ELEMENT(u64, uint64)
ZEROHOP_ELEMENT(float, float32)
ZEROHOP_ELEMENT(double, float64)
ZEROHOP_WORD(int, int32)
ZEROHOP_WORD(u32, uint32)
ZEROHOP_WORD(long, int64)
ZEROHOP_WORD(u64, uint64)
#undef ZEROHOP_BY_TEAM
#undef ZEROHOP_ELEMENT
#undef ZEROHOP_WORD

}  // extern "C"

}  // namespace zerohop::device::numba
