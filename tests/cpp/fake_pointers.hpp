// What cuPointerGetAttributes says of the memory of FakeCuda.
#pragma once

#include "fake_cuda.hpp"

namespace zerohop::testing {

void put_pointer_attribute(const FakeCuda::Memory& memory, int attribute, void* value);

}  // namespace zerohop::testing
