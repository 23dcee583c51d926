#include "base/dtype.hpp"

#include <array>
#include <stdexcept>

namespace zerohop {
namespace {

struct NamedType {
  std::string_view name;
  DType dtype;
};

constexpr std::array kTypes = std::to_array<NamedType>({
    {"bool", {kDTypeBool, 8, 1}},
    {"int8", {kDTypeInt, 8, 1}},
    {"int16", {kDTypeInt, 16, 1}},
    {"int32", {kDTypeInt, 32, 1}},
    {"int64", {kDTypeInt, 64, 1}},
    {"uint8", {kDTypeUInt, 8, 1}},
    {"uint16", {kDTypeUInt, 16, 1}},
    {"uint32", {kDTypeUInt, 32, 1}},
    {"uint64", {kDTypeUInt, 64, 1}},
    {"float16", {kDTypeFloat, 16, 1}},
    {"float32", {kDTypeFloat, 32, 1}},
    {"float64", {kDTypeFloat, 64, 1}},
    {"bfloat16", {kDTypeBfloat, 16, 1}},
    {"float8_e3m4", {7, 8, 1}},
    {"float8_e4m3", {8, 8, 1}},
    {"float8_e4m3b11fnuz", {9, 8, 1}},
    {"float8_e4m3fn", {10, 8, 1}},
    {"float8_e4m3fnuz", {11, 8, 1}},
    {"float8_e5m2", {12, 8, 1}},
    {"float8_e5m2fnuz", {13, 8, 1}},
    {"float8_e8m0fnu", {14, 8, 1}},
    {"complex32", {kDTypeComplex, 32, 1}},
    {"complex64", {kDTypeComplex, 64, 1}},
    {"complex128", {kDTypeComplex, 128, 1}},
});

const NamedType* find(const DType& dtype) noexcept {
  for (const NamedType& type : kTypes) {
    if (type.dtype == dtype) return &type;
  }
  return nullptr;
}

}  // namespace

DType DType::parse(std::string_view name) {
  for (const NamedType& type : kTypes) {
    if (type.name == name) return type.dtype;
  }
  throw std::invalid_argument("dtype '" + std::string(name) + "' is not supported; use one of " +
                              std::string(supported_dtypes()));
}

std::string DType::name() const {
  if (const NamedType* type = find(*this)) return std::string(type->name);
  return "dtype(code=" + std::to_string(code) + ", bits=" + std::to_string(bits) +
         ", lanes=" + std::to_string(lanes) + ")";
}

bool DType::supported() const noexcept { return find(*this) != nullptr; }

std::string_view supported_dtypes() noexcept {
  return "bool, int8 to int64, uint8 to uint64, float16 to float64, bfloat16, complex32 to "
         "complex128, float8_e5m2 and others of 8 bits";
}

}  // namespace zerohop
