// What the library that NVTX loads as its tool (listener.cpp) passes to the test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zerohop::testing {

// A range as it arrived.
struct NvtxRange {
  std::string domain;
  std::string name;
  std::uint64_t payload;
  int ends;  // how often it was ended
};

// Exported as "nvtx_ranges".
using NvtxRanges = void(std::vector<NvtxRange>& ranges);

// The process exits with this status if it calls the tool after the tool's destruction.
constexpr int kCalledTooLate = 97;

}  // namespace zerohop::testing
