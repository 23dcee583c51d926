// What a library that NVTX loads as its tool (listener.cpp) tells the test that runs with it.
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

// With this status the process ends when it calls the tool behind the tool's own end.
constexpr int kCalledTooLate = 97;

}  // namespace zerohop::testing
