// dlpack.h, and what import and export share: type codes and device names.
#pragma once

#include ZEROHOP_DLPACK_HEADER

#include <string>

#include "base/dtype.hpp"

namespace zerohop::bindings {

static_assert(kDLInt == kDTypeInt && kDLUInt == kDTypeUInt && kDLFloat == kDTypeFloat &&
                  kDLBfloat == kDTypeBfloat && kDLComplex == kDTypeComplex &&
                  kDLBool == kDTypeBool && kDLFloat8_e3m4 == kDTypeFloat8First &&
                  kDLFloat8_e8m0fnu == kDTypeFloat8Last,
              "base/dtype.hpp uses DLPack's codes without its header");

inline constexpr char kVersionedCapsule[] = "dltensor_versioned";
inline constexpr char kUsedVersionedCapsule[] = "used_dltensor_versioned";
inline constexpr char kLegacyCapsule[] = "dltensor";
inline constexpr char kUsedLegacyCapsule[] = "used_dltensor";

// "cpu" (pinned host memory included), "cuda:0", ...
std::string device_name(DLDevice device);

// The reverse, for the devices that zerohop allocates on. Throws std::invalid_argument.
DLDevice parse_device(const std::string& name);

}  // namespace zerohop::bindings
