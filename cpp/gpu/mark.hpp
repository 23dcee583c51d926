// Something that a stream can wait for: a word of pinned memory that reaches a number.
#pragma once

#include <cstdint>
#include <memory>

#include "driver/cuda.hpp"

namespace zerohop::gpu {

struct Mark {
  driver::CudaAddress word = 0;
  std::uint32_t number = 0;  // reached at this value or a later one (modulo 2**32)
  std::shared_ptr<const void> owner;
};

}  // namespace zerohop::gpu
