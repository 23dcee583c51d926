// Reads the bytes of a fuzzed input as a script: numbers, choices, strings. An input that is used
// up goes on with zeros, so that every prefix of a script is one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace zerohop::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t nbytes)
      : left_(reinterpret_cast<const std::byte*>(data), nbytes) {}

  bool empty() const noexcept { return left_.empty(); }

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  T take() {
    T value{};
    const std::size_t nbytes = std::min(sizeof value, left_.size());
    if (nbytes > 0) std::memcpy(&value, left_.data(), nbytes);
    left_ = left_.subspan(nbytes);
    return value;
  }
  std::uint8_t byte() { return take<std::uint8_t>(); }
  bool flag() { return (byte() & 1) != 0; }
  std::size_t below(std::size_t bound) { return take<std::uint16_t>() % bound; }

  std::vector<std::byte> bytes(std::size_t most) {
    const std::span<const std::byte> head = left_.first(std::min(most, left_.size()));
    left_ = left_.subspan(head.size());
    return {head.begin(), head.end()};
  }
  // As many as a 16-bit number in front says.
  std::vector<std::byte> blob() { return bytes(take<std::uint16_t>()); }
  std::vector<std::byte> rest() { return bytes(left_.size()); }
  std::string text(std::size_t most) {
    const auto all = bytes(std::min<std::size_t>(byte(), most));
    return {reinterpret_cast<const char*>(all.data()), all.size()};
  }

 private:
  std::span<const std::byte> left_;
};

// What must hold whatever the input is. Ends the process, and the engine keeps the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzzing found that this does not hold: %s\n", what);
  std::abort();
}

}  // namespace zerohop::fuzz
