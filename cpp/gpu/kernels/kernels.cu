// All kernels, as one module.
#include "gpu/kernels/copy_pieces.cu"
#include "gpu/kernels/copy_ranges.cu"
#include "gpu/kernels/forget_notes.cu"
#include "gpu/kernels/group_chunks.cu"
#include "gpu/kernels/group_packets.cu"
#include "gpu/kernels/replayed_copy.cu"
#include "gpu/kernels/replayed_notes.cu"
#include "gpu/kernels/wait_word.cu"
