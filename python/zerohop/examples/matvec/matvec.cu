// Products of 32x32 matrices and vectors, by a kernel that is launched for each batch (multiply),
// and by two that communicate by themselves: the client's (request), the server's (serve).
//
// A batch is cut into pieces, one for each block of the server; a block of the client sends the
// same piece. So 128 pieces are under way side by side, each with slots of its own (plan.py), and
// no block waits for another one, neither here nor there.
#include <blocks.cuh>

using namespace zerohop::device;
using zerohop::examples::end;
using zerohop::examples::Ending;
using zerohop::examples::kOutOfStep;
using zerohop::examples::meet;

constexpr u32 kSide = 32;  // of a matrix: a lane of a warp for each row
constexpr u64 kVector = kSide * sizeof(float);
constexpr u32 kMatrix = kSide * kSide;  // floats
constexpr u32 kTurns = 2;               // buffers, and slots
constexpr u32 kStop = 0xffffffffu;      // in the place of a batch
constexpr u32 kEveryLane = 0xffffffffu;

// What a block has to do with the other side; as Python packs it.
struct Lane {
  u64 queue;        // address of the Queue that leads there
  u32 first;        // of its vectors, in this side's arrays of a batch or a buffer
  u32 first_there;  // of the same, in the other side's
  u32 count;
  u32 slot;        // the first of kTurns on this board
  u32 slot_there;  // on that one
  u32 unused;
};
static_assert(sizeof(Lane) == 32, "as Python packs it");

// Where the arrays lie, in bytes from the beginnings of both parts; as Python packs it.
struct Layout {
  u64 batch;     // bytes of a batch, in the client's part
  u64 buffer;    // of a buffer, in the server's: kTurns of vectors, then kTurns of products
  u64 products;  // where they begin in the client's part
  u32 sets;      // of vectors there, from its beginning on
  u32 lap;       // batches of products
};
static_assert(sizeof(Layout) == 32, "as Python packs it");

__device__ inline const Queue& queue_of(const Lane& lane) {
  return *reinterpret_cast<const Queue*>(lane.queue);
}

// By a warp: row `lane` of a matrix, that lies column by column, times the vector of which each
// lane has an element. So its loads are of 128 bytes in a row, and hit each bank of shared memory
// once. Which order the sum is taken in does not matter: see problem.py.
__device__ inline float product(const float* matrix, float element) {
  const u32 lane = Warp::rank();
  float even = 0, odd = 0;
#pragma unroll
  for (u32 column = 0; column < kSide; column += 2) {
    even += matrix[column * kSide + lane] * __shfl_sync(kEveryLane, element, column);
    odd += matrix[(column + 1) * kSide + lane] * __shfl_sync(kEveryLane, element, column + 1);
  }
  return even + odd;
}

// A warp for each vector.
extern "C" __global__ void __launch_bounds__(256)
    multiply(const float* matrices, const float* vectors, float* products, u32 count) {
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  const u32 vector = thread / kSide;
  if (vector >= count) return;
  const float* const matrix = matrices + u64{vector} * kMatrix;
  products[thread] = product(matrix, __ldcg(vectors + thread));
}

// --- the server ---

// The block's first matrices stay in shared memory as long as the kernel runs, as many as it has
// room for; the others are read again for each batch, mostly from the L2 cache.
__device__ inline void hold(float* held, const float* matrices, u32 count) {
  float4* const target = reinterpret_cast<float4*>(held);
  const float4* const source = reinterpret_cast<const float4*>(matrices);
  for (u32 i = threadIdx.x; i < count * (kMatrix / 4); i += blockDim.x) target[i] = source[i];
  __syncthreads();
}

// Products are gathered in this side's memory first: from there they travel 16 bytes at a time,
// which fills a link, and as they do the number of the notification is asked for.
__device__ Status answer(const Lane& lane, const Layout& layout, const float* held, u32 room,
                         const float* matrices, u32 number) {
  const Queue& queue = queue_of(lane);
  const u64 vectors_at = number % kTurns * layout.buffer + lane.first * kVector;
  const u64 answer_at = vectors_at + kTurns * layout.buffer;
  const float* const vectors = reinterpret_cast<const float*>(queue.local + vectors_at);
  float* const products = reinterpret_cast<float*>(queue.local + answer_at);
  for (u32 i = threadIdx.x / kSide; i < lane.count; i += blockDim.x / kSide) {
    const u32 place = i * kSide + Warp::rank();
    const float element = __ldcg(vectors + place);  // not by the L1 cache: another GPU wrote it
    products[place] = i < room ? product(held + i * kMatrix, element)  // loads of shared memory
                               : product(matrices + u64{i} * kMatrix, element);
  }
  __syncthreads();  // what all threads wrote is what each of them may send
  const u64 to = layout.products + number % layout.lap * layout.batch + lane.first_there * kVector;
  const u32 slot = lane.slot_there + number % kTurns;
  return put_notify<Block>(queue, to, answer_at, lane.count * kVector, slot, number + 1);
}

extern "C" __global__ void __launch_bounds__(512)
    serve(const Lane* lanes, Layout layout, Board board, const float* matrices, u32 room,
          u64 patience, Ending* ending) {
  extern __shared__ float4 shared[];
  float* const held = reinterpret_cast<float*>(shared);
  const Lane lane = lanes[blockIdx.x];
  const float* const own = matrices + u64{lane.first} * kMatrix;
  hold(held, own, lane.count < room ? lane.count : room);
  for (u32 number = 0;; ++number) {
    u32 value = 0;
    const u32 slot = lane.slot + number % kTurns;
    Status got = wait_notify<Block>(board, slot, patience, &value, Reset::alone);
    if (got == Status::ok && value == kStop) return;
    if (got == Status::ok && value != number + 1) return end(ending, kOutOfStep, number);
    if (got == Status::ok) got = answer(lane, layout, held, room, own, number);
    if (got != Status::ok) return end(ending, got, number);
  }
}

// --- the client ---

__device__ Status send(const Lane& lane, const Layout& layout, u32 number) {
  const u64 from = number % layout.sets * layout.batch + lane.first * kVector;
  const u64 to = number % kTurns * layout.buffer + lane.first_there * kVector;
  const u32 slot = lane.slot_there + number % kTurns;
  return put_notify<Block>(queue_of(lane), to, from, lane.count * kVector, slot, number + 1);
}

// False: the block ends.
__device__ bool await(const Lane& lane, Board board, u32 number, u64 patience, Ending* ending) {
  u32 value = 0;
  const u32 slot = lane.slot + number % kTurns;
  const Status got = wait_notify<Block>(board, slot, patience, &value, Reset::alone);
  const u32 status = got == Status::ok && value != number + 1 ? kOutOfStep : static_cast<u32>(got);
  if (status != 0) end(ending, status, number);
  return status == 0;
}

// Batches [first, first + count), `window` of them under way at most; of each the times when this
// block has begun and ended its piece. With one under way a batch begins when all of the one before
// it has come, as it does where a CPU sends it: then the blocks wait for each other.
extern "C" __global__ void __launch_bounds__(256)
    request(const Lane* lanes, Layout layout, Board board, u32 first, u32 count, u32 window,
            u64* begun, u64* ended, u64 patience, Ending* ending) {
  const Lane lane = lanes[blockIdx.x];
  for (u32 turn = 0; turn + 1 < count + window; ++turn) {
    if (turn < count) {
      if (window == 1 && !meet(ending, turn + 1, patience)) return;
      if (threadIdx.x == 0) begun[u64{turn} * gridDim.x + blockIdx.x] = nanoseconds_now();
      const Status sent = send(lane, layout, first + turn);
      if (sent != Status::ok) return end(ending, sent, first + turn);
    }
    if (turn + 1 < window) continue;
    const u32 due = turn + 1 - window;
    if (!await(lane, board, first + due, patience, ending)) return;
    if (threadIdx.x == 0) ended[u64{due} * gridDim.x + blockIdx.x] = nanoseconds_now();
  }
}
