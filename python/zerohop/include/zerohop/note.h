// A notification in the form that GPUs put, in 64 bits: its value above a tag that no other one of the board
// has for a long time. There are two copies, one for streams and kernels in GPU memory of the reader,
// and one for the CPU on the board: by the tag each side knows what the other has taken.
#pragma once

#include "zerohop/integers.h"

namespace zerohop::device {

using Note = u64;

ZEROHOP_BOTH constexpr Note make_note(u32 value, u32 tag) { return Note{value} << 32 | tag; }
ZEROHOP_BOTH constexpr u32 tag_of(Note note) { return static_cast<u32>(note); }
ZEROHOP_BOTH constexpr u32 value_of(Note note) { return static_cast<u32>(note >> 32); }

// A tag is the number of its writer, from 1, above a count of that writer's notes.
constexpr u32 kCountBits = 20;
constexpr u32 kCounts = u32{1} << kCountBits;

}  // namespace zerohop::device
