#include "fake_kernels.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "fake_cuda.hpp"

namespace zerohop::testing {

using driver::CudaResult;
using driver::kCudaErrorInvalidContext;
using driver::kCudaErrorInvalidValue;
using driver::kCudaSuccess;

namespace {

// A function is the address of its name.
std::array<std::string_view, 4> kernels{"zerohop_copy_pieces", "zerohop_copy_ranges",
                                        "zerohop_wait_word", "zerohop_forget_notes"};

template <typename T>
const T& argument(void** arguments, int which) {
  return *static_cast<const T*>(arguments[which]);
}

}  // namespace

CudaResult module_load(driver::CudaModule* module, const void* image) {
  FakeCuda& fake = FakeCuda::in_use();
  if (fake.fails("module_load")) return fake.error;
  if (!FakeCuda::has_context()) return kCudaErrorInvalidContext;
  *module = const_cast<void*>(image);
  ++fake.modules;
  return kCudaSuccess;
}
CudaResult module_unload(driver::CudaModule) {
  --FakeCuda::in_use().modules;
  return kCudaSuccess;
}
CudaResult module_get_function(driver::CudaFunction* function, driver::CudaModule,
                               const char* name) {
  if (FakeCuda::in_use().fails("module_get_function")) return FakeCuda::in_use().error;
  auto* const found = std::ranges::find(kernels, name);
  if (found == kernels.end()) return kCudaErrorInvalidValue;
  *function = found;
  return kCudaSuccess;
}
CudaResult launch_kernel(const driver::CudaLaunch* launch, driver::CudaFunction function,
                         void** arguments, void**) {
  FakeCuda& fake = FakeCuda::in_use();
  if (fake.fails("launch_kernel")) return fake.error;
  if (!FakeCuda::has_context()) return kCudaErrorInvalidContext;
  const auto which = static_cast<const std::string_view*>(function) - kernels.data();
  const bool whole_warps = launch->threads_x % 32 == 0 || which == 2;
  if (launch->blocks_x == 0 || !whole_warps) return kCudaErrorInvalidValue;
  driver::CudaStream stream = launch->stream;
  switch (which) {
    case 0:
      return fake.copies.pieces(argument<driver::CudaAddress>(arguments, 0),
                                argument<std::uint32_t>(arguments, 1),
                                argument<gpu::Tail>(arguments, 2), stream);
    case 1:
      return fake.copies.ranges(argument<gpu::FewRanges>(arguments, 0),
                                argument<gpu::Tail>(arguments, 1), stream);
    case 2: return fake.copies.wait(argument<gpu::Wait>(arguments, 0), stream);
    default:
      return fake.copies.forget(argument<driver::CudaAddress>(arguments, 0),
                                argument<const gpu::NoteAt*>(arguments, 1),
                                argument<std::uint32_t>(arguments, 2), stream);
  }
}

}  // namespace zerohop::testing
