// CRC32C (Castagnoli; RFC 3720, appendix B.4). Kernels compute the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zerohop {

// before: the CRC of the bytes that precede these, if any.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

}  // namespace zerohop
