// Removes notes that the CPU has consumed already from their mirrors, before kernels of the program
// wait there.
#include "gpu/tail.hpp"

using zerohop::gpu::Note;

// A note that arrived since then stays.
extern "C" __global__ void zerohop_forget_notes(Note* notes, const zerohop::gpu::NoteAt* forgotten,
                                                unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  using Word = unsigned long long;
  const zerohop::gpu::NoteAt& one = forgotten[i];
  atomicCAS_system(reinterpret_cast<Word*>(notes + one.slot), Word{one.note}, Word{0});
}
