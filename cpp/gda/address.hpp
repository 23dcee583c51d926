// Addresses in the form that kernels take.
#pragma once

#include <cstdint>

namespace zerohop::gda {

inline std::uint64_t address_of(const volatile void* at) noexcept {
  return reinterpret_cast<std::uintptr_t>(at);
}

}  // namespace zerohop::gda
