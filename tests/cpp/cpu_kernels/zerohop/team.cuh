// Takes the place of the header of the same name where kernels run on CPU threads.
#pragma once

#include "zerohop/integers.h"

namespace zerohop::device {

struct Block {
  static u32 rank() { return threadIdx.x; }
  static u32 size() { return blockDim.x; }
};

}  // namespace zerohop::device
