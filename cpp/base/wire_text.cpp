#include "base/wire_text.hpp"

#include <array>

namespace zerohop {
namespace {

struct Character {
  std::size_t nbytes = 0;  // 0: invalid UTF-8
  char32_t code = 0;
};

// Decodes the first character of non-empty `bytes` (the Unicode Standard, table 3-7).
Character first_of(std::string_view bytes) noexcept {
  constexpr std::array<char32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};  // by the number of bytes
  const auto lead = static_cast<unsigned char>(bytes[0]);
  if (lead < 0x80) return {1, lead};
  const std::size_t nbytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || bytes.size() < nbytes) return {};
  char32_t code = lead & (0x7fu >> nbytes);
  for (std::size_t i = 1; i < nbytes; ++i) {
    const auto next = static_cast<unsigned char>(bytes[i]);
    if ((next & 0xc0) != 0x80) return {};
    code = code << 6 | (next & 0x3fu);
  }
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[nbytes] || code > 0x10ffff || surrogate) return {};
  return {nbytes, code};
}

bool is_control(char32_t code) noexcept {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
}

// Bidi_Control of the Unicode Character Database.
bool turns_direction(char32_t code) noexcept {
  return code == 0x061c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string escaped(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    text += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

}  // namespace

std::string wire_text(std::string_view bytes, std::size_t most) {
  std::string text;
  while (!bytes.empty()) {
    const Character first = first_of(bytes);
    const std::string_view raw = bytes.substr(0, first.nbytes == 0 ? 1 : first.nbytes);
    const bool plain = first.nbytes != 0 && !is_control(first.code) && !turns_direction(first.code);
    const std::string shown = plain ? std::string(raw) : escaped(raw);
    if (text.size() + shown.size() > most) break;
    text += shown;
    bytes.remove_prefix(raw.size());
  }
  return text;
}

}  // namespace zerohop
