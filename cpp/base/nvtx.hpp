// NVTX as a tool for ranges. Implemented by nvtx.cpp, where CMake found the NVTX headers, or by
// no_nvtx.cpp.
#pragma once

#include "base/trace.hpp"

namespace zerohop::trace {

bool has_nvtx() noexcept;  // whether NVTX was built in

// Loads the library that $NVTX_INJECTION64_PATH names; profilers set it for the processes they
// start. Null: no tool listens.
const Tool* open_nvtx();

}  // namespace zerohop::trace
