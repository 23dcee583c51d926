// How long a request may stay without an acknowledgement before it counts as tried in vain.
#pragma once

#include <chrono>
#include <cstdint>

namespace zerohop::softhca {

// Of ibv_qp_attr::timeout, for each try (IBA 9.7.6.1.3): 4.096 us * 2^code. 0 stands for no timer
// at all, which the caller has to mean otherwise.
constexpr std::chrono::nanoseconds ack_timeout(std::uint8_t code) noexcept {
  return std::chrono::nanoseconds(std::int64_t{4096} << code);
}

}  // namespace zerohop::softhca
