#include "prm.hpp"

#include <endian.h>

#include <cstring>

namespace zerohop::mlx5sim::prm {
namespace {

constexpr unsigned kWord = 32;

std::uint32_t word_at(std::span<const std::byte> bytes, unsigned index) noexcept {
  std::uint32_t word = 0;
  if ((index + 1) * sizeof word > bytes.size()) return 0;
  std::memcpy(&word, &bytes[index * sizeof word], sizeof word);
  return be32toh(word);
}

void set_word(std::span<std::byte> bytes, unsigned index, std::uint32_t value) noexcept {
  if ((index + 1) * sizeof value > bytes.size()) return;
  const std::uint32_t word = htobe32(value);
  std::memcpy(&bytes[index * sizeof word], &word, sizeof word);
}

// How far a field of at most one word lies from the end of its word.
unsigned shift_of(Field field) noexcept { return kWord - field.at % kWord - field.bits; }

std::uint32_t mask_of(Field field) noexcept {
  return field.bits == kWord ? ~0u : (1u << field.bits) - 1;
}

}  // namespace

std::uint64_t get(std::span<const std::byte> command, Field field) noexcept {
  const unsigned first = field.at / kWord;
  if (field.bits > kWord) {
    return std::uint64_t{word_at(command, first)} << kWord | word_at(command, first + 1);
  }
  return word_at(command, first) >> shift_of(field) & mask_of(field);
}

void set(std::span<std::byte> answer, Field field, std::uint64_t value) noexcept {
  const unsigned first = field.at / kWord;
  if (field.bits > kWord) {
    set_word(answer, first, static_cast<std::uint32_t>(value >> kWord));
    set_word(answer, first + 1, static_cast<std::uint32_t>(value));
    return;
  }
  const std::uint32_t mask = mask_of(field) << shift_of(field);
  const std::uint32_t others = word_at(answer, first) & ~mask;
  set_word(answer, first, others | (static_cast<std::uint32_t>(value) << shift_of(field) & mask));
}

}  // namespace zerohop::mlx5sim::prm
