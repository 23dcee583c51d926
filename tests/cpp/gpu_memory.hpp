// Registered memory of a fake GPU beside a Side of soft0.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "fake_cuda.hpp"
#include "gpu/copier.hpp"
#include "soft_side.hpp"

namespace zerohop::testing {

constexpr std::size_t kChunk = 4096;  // small: test messages take many turns

inline std::shared_ptr<gpu::Copier> make_copier(const FakeCuda& cuda, std::size_t chunk = kChunk) {
  return std::make_shared<gpu::Copier>(gpu::Device::open(cuda.table(), 0), chunk);
}

// Bytes whose content identifies their position.
inline std::vector<std::byte> pattern(std::size_t nbytes, unsigned seed) {
  std::vector<std::byte> bytes(nbytes);
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

// By its address, where there is no soft0: as with nvidia-peermem.
inline ibv_mr* register_on_gpu(const Side& side, std::uint64_t begin, std::size_t nbytes,
                               const std::shared_ptr<gpu::Copier>& copier) {
  const int access = side.options.memory_access;
  return on_libibverbs() ? soft().reg_mr(side.pd, reinterpret_cast<void*>(begin), nbytes, access)
                         : soft().reg_copied_mr(side.pd, begin, nbytes, access, copier);
}

class GpuMemory {
 public:
  GpuMemory(FakeCuda& cuda, const std::shared_ptr<gpu::Copier>& copier, const Side& side,
            std::size_t nbytes)
      : cuda_(cuda), begin_(cuda.add_bytes(nbytes, std::byte{0xEE})), nbytes_(nbytes) {
    region_ = register_on_gpu(side, begin_, nbytes, copier);
    REQUIRE(region_ != nullptr);
  }
  ~GpuMemory() { deregister(); }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  void deregister() {
    if (region_ != nullptr) CHECK(soft().dereg_mr(region_) == 0);
    region_ = nullptr;
  }
  std::uint64_t at(std::size_t offset) const { return begin_ + offset; }
  std::uint32_t key() const { return region_->rkey; }
  ibv_sge sge(std::size_t offset, std::size_t nbytes) const {
    return {at(offset), static_cast<std::uint32_t>(nbytes), region_->lkey};
  }
  void put(std::size_t offset, const std::vector<std::byte>& bytes) {
    cuda_.copies.write(at(offset), bytes);
  }
  std::vector<std::byte> get(std::size_t offset, std::size_t nbytes) const {
    return cuda_.copies.read(at(offset), nbytes);
  }
  // All of it holds `bytes` at `offset`, and its initial content elsewhere.
  bool holds_only(std::size_t offset, const std::vector<std::byte>& bytes) const {
    std::vector<std::byte> wanted(nbytes_, std::byte{0xEE});
    std::ranges::copy(bytes, wanted.begin() + static_cast<std::ptrdiff_t>(offset));
    return get(0, nbytes_) == wanted;
  }

 private:
  FakeCuda& cuda_;
  std::uint64_t begin_;
  std::size_t nbytes_;
  ibv_mr* region_ = nullptr;
};

}  // namespace zerohop::testing
