// Addresses as kernels are given them.
#pragma once

#include <cstdint>

namespace zerohop::gda {

inline std::uint64_t address_of(const volatile void* at) noexcept {
  return reinterpret_cast<std::uintptr_t>(at);
}

}  // namespace zerohop::gda
