// A libcuda.so.1 of a fake GPU, for programs. As with driver 580, no processor can map its
// dma-bufs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fake_cuda.hpp"

namespace {

using zerohop::testing::FakeCuda;

FakeCuda& gpu() {
  static auto* const made = new FakeCuda;  // used until exit
  return *made;
}

[[gnu::constructor]] void make() { gpu().exports_map = false; }

}  // namespace

// What a test looks at and changes; memory of the GPU faults where a processor touches it.
extern "C" __attribute__((visibility("default"))) void fake_gpu_read(std::uint64_t from,
                                                                     std::byte* to,
                                                                     std::size_t nbytes) {
  std::ranges::copy(gpu().copies.read(from, nbytes), to);
}
extern "C" __attribute__((visibility("default"))) void fake_gpu_write(std::uint64_t to,
                                                                      const std::byte* from,
                                                                      std::size_t nbytes) {
  gpu().copies.write(to, std::vector<std::byte>(from, from + nbytes));
}
