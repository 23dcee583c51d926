// A collective of small blocks: every rank stores packets into the arenas of the others, and looks
// into its own until those of the others are there. See group_call.hpp.
#include "gpu/kernels/group.cuh"

namespace zerohop::gpu {

__device__ inline u64 load_eight(u64 from, u64 left) {
  if (from % 8 == 0 && left >= 8) return *reinterpret_cast<const u64*>(from);
  u64 value = 0;
  for (u32 i = 0; i < 8 && i < left; ++i) {
    value |= u64{reinterpret_cast<const unsigned char*>(from)[i]} << 8 * i;
  }
  return value;
}
__device__ inline void store_eight(u64 to, u64 value, u64 left) {
  if (to % 8 == 0 && left >= 8) {
    *reinterpret_cast<u64*>(to) = value;
    return;
  }
  for (u32 i = 0; i < 8 && i < left; ++i) {
    reinterpret_cast<unsigned char*>(to)[i] = static_cast<unsigned char>(value >> 8 * i);
  }
}

class PacketCall {
 public:
  __device__ PacketCall(const GroupCall& call, const Earlier& earlier)
      : call_(call),
        arena_{call.size},
        counts_(call.arenas[call.rank] + GroupArena::counts(blockIdx.x)),
        number_(earlier.packets + 1),
        patience_(call) {}

  __device__ void send() {
    for (u32 turn = 1; turn < call_.size; ++turn) {
      const u32 to = (call_.rank + turn) % call_.size;
      const u64 from = call_.sends[to], length = from != 0 ? call_.lengths[to] : 0;
      const u64 target = call_.arenas[to] + arena_.packets(number_ % 2, call_.rank);
      for (u64 i = first(); i < packets(length) || always(i); i += step()) {
        const u64 at = i * 8;
        const u64 data = at < length ? load_eight(from + at, length - at) : 0;
        store_packet(target + i * sizeof(Packet), Packet::of(data, number_, call_.hash));
      }
    }
  }

  __device__ void receive_all() {
    bool ok = true;
    if (call_.op == 0) {
      ok = receive();
    } else {
      for_type(call_.type, *this);
      ok = reduced_;
    }
    if (__syncthreads_and(ok) && threadIdx.x == 0) put_word(counts_, number_);
  }

  // Inlined into no other type's, so that none has the registers of all.
  template <typename Element>
  __device__ void of() {
    if constexpr (sizeof(typename Element::Stored) <= sizeof(u64)) reduced_ = reduce<Element>();
  }

 private:
  __device__ u64 first() const { return u64{blockIdx.x} * blockDim.x + threadIdx.x; }
  __device__ u64 step() const { return u64{gridDim.x} * blockDim.x; }
  // Each block of threads hears from every rank in every call: see GroupArena::packets.
  __device__ bool always(u64 i) const { return i == first() && threadIdx.x == 0; }
  static __device__ u64 packets(u64 nbytes) { return (nbytes + 7) / 8; }

  __device__ bool await(u32 rank, u64 i, u64& data) {
    const u64 at = call_.arenas[call_.rank] + arena_.packets(number_ % 2, rank);
    for (;;) {
      const Packet packet = load_packet(at + i * sizeof(Packet));
      if (packet.is_of(number_, call_.hash)) {
        data = packet.data();
        return true;
      }
      if (!patience_.goes_on(rank)) return false;
    }
  }

  __device__ bool receive() {
    const u64 length = call_.lengths[call_.rank];
    for (u64 i = first(); i < packets(length) || always(i); i += step()) {
      for (u32 rank = 0; rank < call_.size; ++rank) {
        const bool comes = has(call_.sources, rank) && i * 8 < length;
        u64 data;
        if (rank == call_.rank) {
          if (!comes) continue;
          data = load_eight(call_.sends[rank] + i * 8, length - i * 8);
        } else if (!comes && !always(i)) {
          continue;
        } else if (!await(rank, i, data)) {
          return false;
        }
        if (comes) store_eight(call_.receives[rank] + i * 8, data, length - i * 8);
      }
    }
    return true;
  }

  template <typename Element>
  __device__ __noinline__ bool reduce() {
    const Reducing<SourceRanks> reducing = reducing_of(call_);
    const u64 length = call_.lengths[call_.rank];
    for (u64 i = first(); i < packets(length) || always(i); i += step()) {
      const u64 at = i * 8;
      const auto load = [&](u32 rank, u64& block) {
        if (rank != call_.rank) return await(rank, i, block);
        block = load_eight(call_.sends[rank] + at, length - at);
        return true;
      };
      u64 reduced;
      if (at < length && call_.result != 0) {
        if (!reduce_bytes<Element>(reducing, reduced, load)) return false;
        store_eight(call_.result + at, reduced, length - at);
      }
      if (!always(i)) continue;
      for (u32 rank = 0; rank < call_.size; ++rank) {
        if (rank != call_.rank && !await(rank, i, reduced)) return false;
      }
    }
    return true;
  }

  const GroupCall& call_;
  const GroupArena arena_;
  const u64 counts_;
  const u32 number_;
  Patience patience_;
  bool reduced_ = true;
};

// Called by all threads.
__device__ inline void run_packets(const GroupCall& call) {
  const Earlier earlier = Earlier::of(call);
  PacketCall mine(call, earlier);
  // The arenas of others may be gone.
  if (!__syncthreads_and(earlier.broken == 0)) return;
  mine.send();
  show(call, earlier.calls + 1);
  mine.receive_all();
  leave(call, earlier.calls + 1);
}

}  // namespace zerohop::gpu

extern "C" __global__ void __launch_bounds__(zerohop::gpu::kGroupThreads, 4)
    zerohop_group_packets(const __grid_constant__ zerohop::gpu::GroupCall call) {
  zerohop::gpu::run_packets(call);
}
