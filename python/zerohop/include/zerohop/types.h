// The values with which a kernel communicates, passed as arguments. The host makes them
// (Python: Peer.device_queue, Endpoint.device_board), and its objects keep the memory that
// they name alive. Addresses are those of the GPU that runs the kernel.
#pragma once

#include "zerohop/integers.h"

namespace zerohop::device {

enum class Status : int {
  ok = 0,
  timed_out = 1,      // the operation continues, and may still complete
  out_of_bounds = 2,  // offset and size exceed the array; nothing was done
  not_allowed = 3,    // the array is read-only; nothing was done
  misaligned = 4,     // an atomic's offset is not a multiple of its size; nothing was done
  bad_slot = 5,       // not a slot of the board, or value 0; nothing was done
  closed = 6,         // the Endpoint was closed, or no peer is left that could notify
  failed = 7,         // an entry was refused or failed; the queue executes nothing more
  corrupt = 8,        // the data is not what was sent
};

enum class Way : u32 {
  mapped = 1,  // the peer's memory is mapped: loads and stores
  ring = 2,    // entries in a ring, which an adapter or a host thread executes
};

// The operations begun with a queue up to some call. With mapped memory all are done when the
// call returns.
struct Ticket {
  u32 end = 0;  // blocks of the ring
};

// What a wait does with the value that it finds.
enum class Reset : u32 {
  no = 0,     // it stays
  yes = 1,    // the slot is emptied: only one of several waiting threads gets the value
  alone = 2,  // the same, half a microsecond faster, if no other thread waits for that slot
};

enum Rights : u32 {
  kPut = 1,      // into the remote array
  kGet = 2,      // from it, into the local one
  kAtomics = 4,  // the link between the GPUs supports them
};

// A local array and one of a Peer, and the way between them.
struct Queue {
  u64 local = 0;
  u64 local_nbytes = 0;
  u64 remote = 0;  // mapped: this GPU's address; ring: the Peer's address
  u64 remote_nbytes = 0;
  u64 ring = 0;   // a RingWay in this GPU's memory; 0: mapped
  u64 mirrors = 0;  // address of slot 0 of the Peer's notes, in the memory of its GPU; 0: not used
  u64 notes = 0;  // the same on its board, for CPUs; 0: not used. Ring: of its words
  u64 count = 0;  // 32 bits of this GPU's memory: notes this queue has put, modulo kCounts
  u32 writer = 0;
  u32 slots = 0;  // number of slots of the Peer's board
  u32 rights = 0;
  Way way = Way::mapped;
};

// Slots of this process's board, on which kernels wait.
struct Board {
  u64 notes = 0;   // address of slot 0, written by GPUs
  u64 words = 0;   // address of slot 0 for values of CPUs and adapters, in host memory
  u64 closed = 0;  // 32 bits of host memory; not 0: nothing more will come
  u32 first = 0;
  u32 slots = 0;
};

static_assert(sizeof(Queue) == 80 && sizeof(Board) == 32, "as Python packs them");

}  // namespace zerohop::device
