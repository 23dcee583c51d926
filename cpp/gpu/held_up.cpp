#include "gpu/held_up.hpp"

#include <array>
#include <cstdio>

#include "base/report.hpp"

namespace zerohop::gpu {

HeldUp::~HeldUp() {
  const Clock::duration took = Clock::now() - began_;
  if (took < bound_) return;
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(),
                "the CUDA driver blocked %s for %.1f s. Most likely another thread of this program "
                "copied pageable memory (tensor.cpu(), cupy.ndarray.get(), cudaMemcpy) or freed "
                "GPU memory behind a kernel or stream that waited for this very copy: "
                "synchronize the stream first, or copy to pinned memory with non_blocking=True",
                call_, std::chrono::duration<double>(took).count());
  report(text.data());
}

}  // namespace zerohop::gpu
