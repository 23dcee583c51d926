// Checksums (CRC32C) of arrays of the host and of GPUs, wherever and however they lie.
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

// So many bytes have a checksum of their own: a mismatch is told as precisely as that.
inline constexpr std::uint64_t kSummedNbytes = std::uint64_t{1} << 20;

// Bytes [first, first + nbytes) of the elements of an array, counted in C order without gaps.
struct SummedPart {
  Layout layout;
  std::uint64_t first = 0;
  std::uint64_t nbytes = 0;
};

class Checksums {
 public:
  // chunk: bytes copied at a time from a GPU, through pinned memory of the host.
  explicit Checksums(std::size_t chunk) : chunk_(chunk) {}

  // One for every kSummedNbytes of the part, the last of what is left. device: on which it lies;
  // null: the host. Throws CudaError or TransferTimeout, also when a GPU does not answer for four
  // seconds, and what check() throws. One thread at a time.
  std::vector<std::uint32_t> of(const SummedPart& part, const gpu::Device* device);
  // Throws RegistrationError where `layout`, of a GPU's memory, is too scattered for of(), given
  // `most` bytes at a time.
  static void check(const Layout& layout, std::uint64_t most);
  // Of GPUs, and of the memory that is pinned for them.
  void let_go() noexcept {
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
