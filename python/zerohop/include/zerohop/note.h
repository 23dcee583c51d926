// A notification as GPUs put it, in 64 bits: its value above a tag that no other one of its board
// has for a long time. It lies twice, for streams and kernels in the memory of a GPU of the reader,
// and for the CPU on the board: by the tag each side knows what the other has taken.
#pragma once

#include "zerohop/integers.h"

namespace zerohop::device {

using Note = u64;

ZEROHOP_BOTH constexpr Note make_note(u32 value, u32 tag) { return Note{value} << 32 | tag; }
ZEROHOP_BOTH constexpr u32 tag_of(Note note) { return static_cast<u32>(note); }
ZEROHOP_BOTH constexpr u32 value_of(Note note) { return static_cast<u32>(note >> 32); }

// A tag is the number of its writer, from 1, above a count of what that one has put.
constexpr u32 kCountBits = 20;
constexpr u32 kCounts = u32{1} << kCountBits;

}  // namespace zerohop::device
