// NVTX as a tool for ranges. One of two sources has it: nvtx.cpp, where CMake found the headers of
// NVTX, or no_nvtx.cpp.
#pragma once

#include "base/trace.hpp"

namespace zerohop::trace {

bool has_nvtx() noexcept;  // whether it was built in

// Loads what $NVTX_INJECTION64_PATH names, as a profiler sets it for the processes it starts. Null:
// nothing listens.
const Tool* open_nvtx();

}  // namespace zerohop::trace
