// How long a request may stay unacknowledged before a try counts as failed.
#pragma once

#include <chrono>
#include <cstdint>

namespace zerohop::softhca {

// The time of one try for ibv_qp_attr::timeout (IBA 9.7.6.1.3): 4.096 us * 2^code. Code 0 means no
// timer at all; the caller must handle it.
constexpr std::chrono::nanoseconds ack_timeout(std::uint8_t code) noexcept {
  return std::chrono::nanoseconds(std::int64_t{4096} << code);
}

}  // namespace zerohop::softhca
