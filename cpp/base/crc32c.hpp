// CRC32C (Castagnoli; RFC 3720, appendix B.4), as kernels compute it, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zerohop {

// before: of the bytes that came before these, if any did.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

}  // namespace zerohop
