/* A stand-in for what nvcc makes of python/zerohop/bench/gda/nvshmem.cu: the same calls, which move
 * nothing. Each figure tells which arguments came. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int rank_ = -1;

int peer_id_nbytes(void) { return 128; }
int peer_make_id(void* id) { return memset(id, 'i', 128) == id ? 0 : 1; }
int peer_begin(int gpu, int rank, const void* id, uint64_t nbytes) {
  const char* const no_multicast = getenv("NVSHMEM_DISABLE_NVLS");
  if (no_multicast == NULL || strcmp(no_multicast, "1") != 0) return 6;
  if (((const char*)id)[127] != 'i' || nbytes != (uint64_t)64 << 20) return 7;
  rank_ = rank;
  return gpu == rank ? 0 : 8;
}
int peer_version(int* major, int* minor, int* patch) {
  *major = 3, *minor = 4, *patch = 5;
  return 0;
}
int peer_is_mapped(void) { return 1; }
int peer_ping_pong(uint32_t threads, uint64_t nbytes, uint32_t count, uint32_t warm, int first,
                   double* seconds) {
  *seconds = threads * 1e-6 + nbytes * 1e-9;
  return (first != 0) == (rank_ == 0) && count == 10 * warm ? 0 : 9;
}
int peer_put_values(uint32_t blocks, uint32_t threads, uint32_t times, double* seconds) {
  *seconds = (double)blocks * threads * times / 1e6;
  return 0;
}
int peer_put_many(uint32_t blocks, uint32_t threads, uint32_t times, double* seconds) {
  *seconds = 1.0;
  return blocks == 132 ? 700 : 0; /* a launch that fails */
}
int peer_put_wide(uint32_t blocks, uint32_t threads, uint64_t nbytes, uint64_t piece,
                  double* seconds) {
  *seconds = nbytes / 1e9;
  return blocks == 132 && threads == 512 && piece == 64 << 10 ? 0 : 9;
}
void peer_end(void) {}
