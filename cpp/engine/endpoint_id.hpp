// Names one Endpoint among all of the world: random bytes, made with it.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

namespace zerohop::engine {

using EndpointId = std::array<std::byte, 16>;

// == takes them byte by byte.
inline bool same_id(const EndpointId& a, const EndpointId& b) noexcept {
  return std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace zerohop::engine
