// Seconds as calls take them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace zerohop {

inline std::string seconds_text(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

// The bound of a kernel's wait, at most three years.
inline std::uint64_t to_nanoseconds(double seconds) {
  return static_cast<std::uint64_t>(std::llround(std::min(seconds, 1e8) * 1e9));
}

}  // namespace zerohop
