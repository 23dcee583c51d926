#include "bindings/dlpack.hpp"

#include <charconv>
#include <stdexcept>

namespace zerohop::bindings {

std::string device_name(DLDevice device) {
  const auto numbered = [device](const std::string& kind) {
    return kind + ":" + std::to_string(device.device_id);
  };
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
    case kDLROCMHost: return "cpu";
    case kDLCUDA:
    case kDLCUDAManaged: return numbered("cuda");
    case kDLROCM: return numbered("rocm");
    case kDLMetal: return numbered("mps");
    case kDLOneAPI: return numbered("xpu");
    default: return numbered("dlpack-device-" + std::to_string(device.device_type));
  }
}

DLDevice parse_device(const std::string& name) {
  if (name == "cpu") return {kDLCPU, 0};
  constexpr std::size_t kPrefix = 5;  // "cuda:"
  int index = 0;
  if (name.starts_with("cuda:")) {
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kPrefix, end, index);
    if (error == std::errc{} && rest == end && index >= 0) return {kDLCUDA, index};
  }
  throw std::invalid_argument("device '" + name + "' is unknown; use \"cpu\" or \"cuda:<index>\"");
}

}  // namespace zerohop::bindings
