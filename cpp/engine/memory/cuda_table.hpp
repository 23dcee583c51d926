// The CUDA driver, loaded when it is needed.
#pragma once

#include <memory>
#include <string>

#include "base/error.hpp"
#include "driver/cuda.hpp"

namespace zerohop::engine {

// `given`, or libcuda's if that is null. wanted: what needs it, for the message. Throws
// RegistrationError when there is no driver.
inline std::shared_ptr<const driver::Cuda> cuda_or(const std::shared_ptr<const driver::Cuda>& given,
                                                   const std::string& wanted) {
  if (given) return given;
  const driver::CudaLibrary& library = driver::libcuda();
  if (!library.cuda) throw RegistrationError(wanted + " is not available: " + library.reason);
  return library.cuda;
}

// The same for a call that requires a GPU; otherwise: advice for callers without one. Throws
// RouteUnavailable.
inline std::shared_ptr<const driver::Cuda> cuda_for_call(
    const std::shared_ptr<const driver::Cuda>& given, const std::string& wanted,
    const char* otherwise) {
  try {
    return cuda_or(given, wanted);
  } catch (const RegistrationError& error) {
    throw RouteUnavailable(std::string(error.what()) + "; without a GPU " + otherwise);
  }
}

// ... for a call with stream=.
inline std::shared_ptr<const driver::Cuda> cuda_for_stream(
    const std::shared_ptr<const driver::Cuda>& given) {
  return cuda_for_call(given, "a GPU stream", "leave stream= out");
}

}  // namespace zerohop::engine
