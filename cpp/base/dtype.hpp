// The element type of an array, encoded as DLPack encodes it and named as numpy, ml_dtypes and
// torch name it ("float16", "bfloat16", "float8_e4m3fn", "complex64", "bool", ...).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zerohop {

// DLPack's type codes (dlpack.h, DLDataTypeCode); the bindings assert that they agree.
inline constexpr std::uint8_t kDTypeInt = 0;
inline constexpr std::uint8_t kDTypeUInt = 1;
inline constexpr std::uint8_t kDTypeFloat = 2;
inline constexpr std::uint8_t kDTypeBfloat = 4;
inline constexpr std::uint8_t kDTypeComplex = 5;
inline constexpr std::uint8_t kDTypeBool = 6;
// The eight float8 variants: 7 (e3m4) to 14 (e8m0fnu).
inline constexpr std::uint8_t kDTypeFloat8First = 7;
inline constexpr std::uint8_t kDTypeFloat8Last = 14;

struct DType {
  std::uint8_t code = kDTypeUInt;
  std::uint8_t bits = 8;
  std::uint16_t lanes = 1;

  // Throws std::invalid_argument, naming the supported types, for any other name.
  static DType parse(std::string_view name);

  // "float16"; for an unsupported type a description such as "dtype(code=17, bits=4, lanes=2)".
  std::string name() const;

  // Whether zerohop moves this type: whole bytes, one lane, one of the names above.
  bool supported() const noexcept;

  // Bytes of one element.
  std::uint32_t itemsize() const noexcept { return (std::uint32_t{bits} * lanes + 7) / 8; }

  friend bool operator==(const DType&, const DType&) = default;
};

// "bool, int8 to int64, ...", for messages.
std::string_view supported_dtypes() noexcept;

}  // namespace zerohop
