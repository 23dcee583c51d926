// cuPointerGetAttributes for the memory of FakeCuda.
#pragma once

#include "fake_cuda.hpp"

namespace zerohop::testing {

// Of the memory that contains `address`.
void put_pointer_attribute(const FakeCuda::Memory& memory, std::uint64_t address, int attribute,
                           void* value);

}  // namespace zerohop::testing
