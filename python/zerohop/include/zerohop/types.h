// What a kernel is given to communicate by itself: plain values, passed as arguments. They are
// made by the host (Python: Peer.device_queue, Endpoint.device_board), whose objects keep alive
// what they name. Addresses are those of the GPU that runs the kernel.
#pragma once

#include "zerohop/integers.h"

namespace zerohop::device {

enum class Status : int {
  ok = 0,
  timed_out = 1,      // what goes on may still come
  out_of_bounds = 2,  // an offset and a size leave the array; nothing was done
  not_allowed = 3,    // the array is read-only; nothing was done
  misaligned = 4,     // an atomic's offset is no multiple of its size; nothing was done
  bad_slot = 5,       // not one of the board's, or no value (0); nothing was done
  closed = 6,         // the Endpoint was closed, or no peer is left that could notify
  failed = 7,         // an entry was refused or could not be carried out; nothing will be any more
  corrupt = 8,        // the data is not what was sent
};

enum class Way : u32 {
  mapped = 1,  // the peer's memory is mapped: loads and stores
  ring = 2,    // entries in a ring, which an adapter or a thread of the host carries out
};

// What was begun with a queue up to some call. By the way of mapped memory all is done with the
// call.
struct Ticket {
  u32 end = 0;  // blocks of the ring
};

// What becomes of the value that a wait has found.
enum class Reset : u32 {
  no = 0,     // it stays
  yes = 1,    // the slot is emptied: of several threads that wait for it one has the value
  alone = 2,  // the same, half a microsecond faster, where no other thread waits for that slot
};

enum Rights : u32 {
  kPut = 1,      // into the remote array
  kGet = 2,      // out of it, into the local one
  kAtomics = 4,  // the GPUs are joined by a link that carries them
};

// A local array and one of a Peer, and the way between them.
struct Queue {
  u64 local = 0;
  u64 local_nbytes = 0;
  u64 remote = 0;  // mapped: where this GPU has it; ring: where the Peer has it
  u64 remote_nbytes = 0;
  u64 ring = 0;   // a RingWay in this GPU's memory; 0: mapped
  u64 mirrors = 0;  // of slot 0 of the Peer's notes, in the memory of its GPU; 0: none hears there
  u64 notes = 0;  // of the same on its board, where CPUs hear; 0: none does. Ring: of its words
  u64 count = 0;  // 32 bits of this GPU's memory: notes this queue has put, modulo kCounts
  u32 writer = 0;
  u32 slots = 0;  // of the Peer's board
  u32 rights = 0;
  Way way = Way::mapped;
};

// Slots of this process's board, for kernels to wait on.
struct Board {
  u64 notes = 0;   // of slot 0, put by GPUs
  u64 words = 0;   // of slot 0, values put by CPUs and adapters: in the memory of the host
  u64 closed = 0;  // 32 bits of the host's memory: not 0, nothing will come any more
  u32 first = 0;
  u32 slots = 0;
};

static_assert(sizeof(Queue) == 80 && sizeof(Board) == 32, "as Python packs them");

}  // namespace zerohop::device
