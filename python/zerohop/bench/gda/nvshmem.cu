// The peer "nvshmem" of `zerohop bench gda`: kernels that communicate by NVSHMEM, and functions
// that Python calls through ctypes. Each returns 0, or an error of the CUDA runtime or of NVSHMEM.
#include <nvshmem.h>
#include <nvshmemx.h>

#include <cstdint>
#include <cstring>

namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

__device__ u64 nanoseconds_now() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// The memory of both sides, at the same place in NVSHMEM's symmetric heap.
struct Arena {
  char* outbox;
  char* inbox;
  u64 nbytes;   // of each half
  u64* signal;  // of a ping-pong: counts up during the process
  u64* took;    // nanoseconds, 0 unless all rounds completed; only of this GPU
  int other;    // PE
};

// The rounds of a call, and the untimed ones among them.
struct Rounds {
  u32 count;
  u32 warm;
  bool first;
  u64 base;  // base value of the signal
};

__device__ void keep_time(const Arena& arena, const Rounds& rounds, u32 round, u64& began) {
  if (round == rounds.warm) began = nanoseconds_now();
  if (round == rounds.warm + rounds.count) *arena.took = nanoseconds_now() - began;
}

template <bool kBlock>
__device__ void put_signal(const Arena& arena, u64 nbytes, u64 value) {
  if constexpr (kBlock) {
    nvshmemx_putmem_signal_block(arena.inbox, arena.outbox, nbytes, arena.signal, value,
                                 NVSHMEM_SIGNAL_SET, arena.other);
  } else {
    nvshmem_putmem_signal(arena.inbox, arena.outbox, nbytes, arena.signal, value,
                          NVSHMEM_SIGNAL_SET, arena.other);
  }
}

template <bool kBlock>
__global__ void __launch_bounds__(1024) ping_pong(Arena arena, Rounds rounds, u64 nbytes) {
  u64 began = 0;
  for (u32 round = 1; round <= rounds.warm + rounds.count; ++round) {
    const u64 value = rounds.base + round;
    if (rounds.first) put_signal<kBlock>(arena, nbytes, value);
    if (threadIdx.x == 0) nvshmem_signal_wait_until(arena.signal, NVSHMEM_CMP_EQ, value);
    if (kBlock) __syncthreads();
    if (!rounds.first) put_signal<kBlock>(arena, nbytes, value);
    if (threadIdx.x == 0) keep_time(arena, rounds, round, began);
  }
}

// The 8-byte places of a thread: a new one each time as long as there is one.
struct Places {
  u64 at;
  u64 first;
  u64 stride;  // over all threads
  u64 end;
  __device__ void go_on() {
    at += stride;
    if (at >= end) at = first;
  }
};
__device__ Places places_of_thread(const Arena& arena) {
  const u64 first = (u64{blockIdx.x} * blockDim.x + threadIdx.x) * sizeof(u64);
  return {first, first, u64{gridDim.x} * blockDim.x * sizeof(u64), arena.nbytes};
}

__global__ void __launch_bounds__(512) put_values(Arena arena, u32 times) {
  Places places = places_of_thread(arena);
  for (u32 i = 0; i < times; ++i) {
    nvshmem_uint64_p(reinterpret_cast<u64*>(arena.inbox + places.at), places.first + i,
                     arena.other);
    places.go_on();
  }
}

__global__ void __launch_bounds__(512) put_many(Arena arena, u32 times) {
  Places places = places_of_thread(arena);
  for (u32 i = 0; i < times; ++i) {
    nvshmem_putmem(arena.inbox + places.at, arena.outbox + places.at, sizeof(u64), arena.other);
    places.go_on();
  }
}

__global__ void __launch_bounds__(1024) put_wide(Arena arena, u64 nbytes, u64 piece) {
  for (u64 at = blockIdx.x * piece; at < nbytes; at += gridDim.x * piece) {
    const u64 left = nbytes - at;
    nvshmemx_putmem_block(arena.inbox + at, arena.outbox + at, left < piece ? left : piece,
                          arena.other);
  }
}

Arena arena;
u64 signalled = 0;
cudaStream_t stream;
cudaEvent_t begun, ended;

Rounds next_rounds(u32 count, u32 warm, int first) {
  const Rounds rounds{count, warm, first != 0, signalled};
  signalled += u64{warm} + count;
  cudaMemsetAsync(arena.took, 0, sizeof *arena.took, stream);
  return rounds;
}

cudaError_t seconds_by_clock(const Rounds& rounds, double* seconds) {
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  u64 nanoseconds = 0;
  if (error == cudaSuccess) {
    error = cudaMemcpy(&nanoseconds, arena.took, sizeof nanoseconds, cudaMemcpyDeviceToHost);
  }
  if (error == cudaSuccess && nanoseconds == 0) error = cudaErrorLaunchTimeout;
  *seconds = static_cast<double>(nanoseconds) * 1e-9 / (2.0 * rounds.count);
  return error;
}

template <typename Launch>
cudaError_t seconds_by_events(Launch launch, double* seconds) {
  cudaEventRecord(begun, stream);
  launch();
  cudaError_t error = cudaGetLastError();
  cudaEventRecord(ended, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  float milliseconds = 0;
  if (error == cudaSuccess) error = cudaEventElapsedTime(&milliseconds, begun, ended);
  *seconds = milliseconds * 1e-3;
  return error;
}

// Loads kernels now: a later load may have to wait for a running kernel.
template <typename... Kernels>
cudaError_t load(Kernels... kernels) {
  cudaError_t error = cudaSuccess;
  cudaFuncAttributes found;
  ((error = error == cudaSuccess ? cudaFuncGetAttributes(&found, kernels) : error), ...);
  return error;
}

}  // namespace

extern "C" {

int peer_id_nbytes() { return sizeof(nvshmemx_uniqueid_t); }

int peer_make_id(void* id) {
  nvshmemx_uniqueid_t made = NVSHMEMX_UNIQUEID_INITIALIZER;
  const int status = nvshmemx_get_uniqueid(&made);
  std::memcpy(id, &made, sizeof made);
  return status;
}

// Both ranks call it together; the arena has room for puts of `nbytes`.
int peer_begin(int gpu, int rank, const void* id, u64 nbytes) {
  if (const cudaError_t error = cudaSetDevice(gpu)) return error;
  nvshmemx_uniqueid_t known;
  std::memcpy(&known, id, sizeof known);
  nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
  if (const int status = nvshmemx_set_attr_uniqueid_args(rank, 2, &known, &attributes)) {
    return status;
  }
  if (const int status = nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes)) {
    return status;
  }
  arena.outbox = static_cast<char*>(nvshmem_malloc(nbytes));
  arena.inbox = static_cast<char*>(nvshmem_calloc(1, nbytes));
  arena.nbytes = nbytes;
  arena.signal = static_cast<u64*>(nvshmem_calloc(1, sizeof(u64)));
  arena.other = 1 - rank;
  if (arena.outbox == nullptr || arena.inbox == nullptr || arena.signal == nullptr) {
    return cudaErrorMemoryAllocation;
  }
  cudaError_t error = cudaMalloc(&arena.took, sizeof(u64));
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error == cudaSuccess) error = cudaEventCreate(&begun);
  if (error == cudaSuccess) error = cudaEventCreate(&ended);
  if (error == cudaSuccess) {
    error = load(ping_pong<false>, ping_pong<true>, put_values, put_many, put_wide);
  }
  return error;
}

int peer_version(int* major, int* minor, int* patch) {
  nvshmemx_vendor_get_version_info(major, minor, patch);
  return 0;
}

// Whether the other side's memory is mapped here, so that puts are stores.
int peer_is_mapped() { return nvshmem_ptr(arena.inbox, arena.other) != nullptr; }

// With one thread, or a block of `threads`. Seconds one way.
int peer_ping_pong(u32 threads, u64 nbytes, u32 count, u32 warm, int first, double* seconds) {
  const Rounds rounds = next_rounds(count, warm, first);
  if (threads == 1) {
    ping_pong<false><<<1, 1, 0, stream>>>(arena, rounds, nbytes);
  } else {
    ping_pong<true><<<1, threads, 0, stream>>>(arena, rounds, nbytes);
  }
  return seconds_by_clock(rounds, seconds);
}

// Total seconds.
int peer_put_values(u32 blocks, u32 threads, u32 times, double* seconds) {
  return seconds_by_events([&] { put_values<<<blocks, threads, 0, stream>>>(arena, times); },
                           seconds);
}

int peer_put_many(u32 blocks, u32 threads, u32 times, double* seconds) {
  return seconds_by_events([&] { put_many<<<blocks, threads, 0, stream>>>(arena, times); },
                           seconds);
}

int peer_put_wide(u32 blocks, u32 threads, u64 nbytes, u64 piece, double* seconds) {
  return seconds_by_events([&] { put_wide<<<blocks, threads, 0, stream>>>(arena, nbytes, piece); },
                           seconds);
}

// Both ranks call it.
void peer_end() {
  nvshmem_free(arena.signal);
  nvshmem_free(arena.inbox);
  nvshmem_free(arena.outbox);
  nvshmem_finalize();
}

}  // extern "C"
