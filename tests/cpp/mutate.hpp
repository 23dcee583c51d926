// All small ways in which bytes can be damaged.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace zerohop::testing {

// Calls `check` with every proper prefix, each in a separate allocation, so that a sanitizer
// detects a read past its end.
void for_each_truncation(std::span<const std::byte> bytes, auto check) {
  for (std::size_t nbytes = 0; nbytes < bytes.size(); ++nbytes) {
    const std::span<const std::byte> prefix = bytes.first(nbytes);
    check(std::vector<std::byte>(prefix.begin(), prefix.end()));
  }
}

// Calls `check` with every copy that differs in one bit.
void for_each_bit_flip(std::span<const std::byte> bytes, auto check) {
  std::vector<std::byte> copy(bytes.begin(), bytes.end());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const std::byte mask{static_cast<unsigned char>(1u << (bit % 8))};
    copy[bit / 8] ^= mask;
    check(std::vector<std::byte>(copy));
    copy[bit / 8] ^= mask;
  }
}

}  // namespace zerohop::testing
