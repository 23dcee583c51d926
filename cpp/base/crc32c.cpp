#include "base/crc32c.hpp"

#include <cstring>

#include "zerohop/crc32c.h"

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

namespace zerohop {
namespace {

#ifdef __x86_64__
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(const std::byte* bytes,
                                                               std::size_t nbytes,
                                                               std::uint32_t before) noexcept {
  std::uint64_t state = ~before;
  for (; nbytes >= sizeof(std::uint64_t); nbytes -= sizeof(std::uint64_t)) {
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    state = _mm_crc32_u64(state, word);
    bytes += sizeof word;
  }
  auto last = static_cast<std::uint32_t>(state);
  for (; nbytes > 0; --nbytes) last = _mm_crc32_u8(last, static_cast<std::uint8_t>(*bytes++));
  return ~last;
}
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return by_instruction(bytes.data(), bytes.size(), before);
#endif
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
  return ~device::crc::update(~before, data, bytes.size());
}

}  // namespace zerohop
