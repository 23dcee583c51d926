// Little-endian encoding of plain values, and bounds-checked decoding of untrusted bytes.
//
// Decoding is pure: it reads the given span, allocates no more than that span holds, and throws
// ProtocolError on truncated, oversized or trailing bytes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/wire_text.hpp"

namespace zerohop {

class WireWriter {
 public:
  template <std::unsigned_integral T>
  void number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
    }
  }

  // Exactly these bytes, without a length: the reader knows it.
  void fixed(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  // A 32-bit length and the bytes. Refuses what a reader with the same limit refuses.
  void blob(std::span<const std::byte> bytes, std::size_t limit) {
    if (bytes.size() > limit) {
      throw ProtocolError("cannot encode a field of " + std::to_string(bytes.size()) +
                          " bytes: the limit is " + std::to_string(limit) + "; shorten it");
    }
    number(static_cast<std::uint32_t>(bytes.size()));
    fixed(bytes);
  }
  void text(std::string_view text, std::size_t limit) {
    blob(std::as_bytes(std::span(text)), limit);
  }

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  std::vector<std::byte> take() noexcept { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class WireReader {
 public:
  // `noun` names what is being decoded in errors ("control message"); a string literal.
  WireReader(std::span<const std::byte> bytes, const char* noun) noexcept
      : left_(bytes), noun_(noun) {}

  template <std::unsigned_integral T>
  T number() {
    std::uint64_t value = 0;
    const std::span<const std::byte> bytes = take(sizeof(T));
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    }
    return static_cast<T>(value);
  }

  void fixed(std::span<std::byte> into) {
    const std::span<const std::byte> bytes = take(into.size());
    if (!into.empty()) std::memcpy(into.data(), bytes.data(), into.size());
  }

  // The view is valid as long as the decoded span.
  std::span<const std::byte> blob(std::size_t limit) {
    const auto nbytes = number<std::uint32_t>();
    if (nbytes > limit) {
      fail("a field claims " + std::to_string(nbytes) + " bytes, more than the " +
           std::to_string(limit) + " allowed");
    }
    return take(nbytes);
  }
  // Safe to display: see wire_text().
  std::string text(std::size_t limit) { return wire_text(key(limit), limit); }
  // Raw bytes for lookup and comparison, never for display. A view like blob()'s.
  std::string_view key(std::size_t limit) {
    const std::span<const std::byte> bytes = blob(limit);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::size_t left() const noexcept { return left_.size(); }

  // Call at the end: leftover bytes mean that the two sides disagree.
  void finish() const {
    if (!left_.empty()) fail(std::to_string(left_.size()) + " unexpected bytes at the end");
  }

  [[noreturn]] void fail(const std::string& cause) const {
    throw ProtocolError(std::string("invalid ") + noun_ + ": " + cause +
                        "; both sides must run the same version of zerohop");
  }

 private:
  std::span<const std::byte> take(std::size_t nbytes) {
    if (nbytes > left_.size()) {
      fail("truncated, " + std::to_string(nbytes) + " more bytes needed where " +
           std::to_string(left_.size()) + " are left");
    }
    const std::span<const std::byte> head = left_.first(nbytes);
    left_ = left_.subspan(nbytes);
    return head;
  }

  std::span<const std::byte> left_;
  const char* noun_;
};

}  // namespace zerohop
