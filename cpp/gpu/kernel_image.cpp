#include "gpu/kernel_image.hpp"

// ZEROHOP_KERNELS: the path of the fat binary, from CMakeLists.txt.
#ifdef ZEROHOP_KERNELS
asm(".section .rodata\n"
    ".balign 64\n"
    "zerohop_kernels_begin:\n"
    ".incbin \"" ZEROHOP_KERNELS
    "\"\n"
    "zerohop_kernels_end:\n"
    ".previous\n");
extern "C" {
__attribute__((visibility("hidden"))) extern const std::byte zerohop_kernels_begin[];
__attribute__((visibility("hidden"))) extern const std::byte zerohop_kernels_end[];
}
#endif

namespace zerohop::gpu {

std::span<const std::byte> kernel_image() noexcept {
#ifdef ZEROHOP_KERNELS
  return {zerohop_kernels_begin, zerohop_kernels_end};
#else
  return {};
#endif
}

}  // namespace zerohop::gpu
