// Checksums (CRC32C) of arrays in host or GPU memory, of any layout.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/layout.hpp"
#include "gpu/copier.hpp"
#include "gpu/device.hpp"
#include "gpu/gatherer.hpp"

namespace zerohop::engine {

// Bytes per checksum: a mismatch is located to this precision.
inline constexpr std::uint64_t kSummedNbytes = std::uint64_t{1} << 20;

// Bytes [first, first + nbytes) of the elements of an array, counted in C order without gaps.
struct SummedPart {
  Layout layout;
  std::uint64_t first = 0;
  std::uint64_t nbytes = 0;
};

class Checksums {
 public:
  // chunk: bytes copied at a time from a GPU, through pinned host memory.
  explicit Checksums(std::size_t chunk) : chunk_(chunk) {}

  // One checksum per kSummedNbytes of the part, the last one over the rest. device: holds the
  // array; null: the host. Throws CudaError, TransferTimeout (also when a GPU does not answer for
  // four seconds), and what check() throws. One thread at a time.
  std::vector<std::uint32_t> of(const SummedPart& part, const gpu::Device* device);
  // Throws RegistrationError if `layout`, in GPU memory, is too scattered for of(), given `most`
  // bytes at a time.
  static void check(const Layout& layout, std::uint64_t most);
  // Releases the GPUs and the memory pinned for them.
  void release() noexcept {
    copiers_.clear();
    gatherers_.clear();
  }

 private:
  driver::Copier& copier_of(const gpu::Device& device);
  gpu::Gatherer& gatherer_of(const gpu::Device& device);

  const std::size_t chunk_;
  std::map<int, std::unique_ptr<gpu::Copier>> copiers_;      // by ordinal of the GPU
  std::map<int, std::unique_ptr<gpu::Gatherer>> gatherers_;  // likewise
};

}  // namespace zerohop::engine
