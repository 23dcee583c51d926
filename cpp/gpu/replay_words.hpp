// Words in GPU memory for captured calls: counts that go on from one replay to the next, and gates
// by which the CPU ends what graphs do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "gpu/gpu_words.hpp"
#include "gpu/places.hpp"

namespace zerohop::gpu {

// Thread-safe.
class ReplayWords {
 public:
  static constexpr std::uint32_t kCounts = 65536;  // one for each slot of a board
  static constexpr std::uint32_t kGates = 65536;   // captured calls of existing graphs

  // All are 0: the gates are open. Throws CudaError, TransferTimeout (the GPU stays busy).
  ReplayWords(const std::shared_ptr<const Device>& device, const Deadline& deadline);

  const std::shared_ptr<const Device>& device() const noexcept { return words_->device(); }

  driver::CudaAddress count(std::uint32_t slot) const noexcept { return address(slot); }
  driver::CudaAddress placed(std::uint32_t slot) const noexcept {
    return address(kCounts + kGates + slot);
  }
  // Sets each byte of a count. Throws as the constructor does.
  void set_count(std::uint32_t slot, unsigned char byte, const Deadline& deadline) const;

  // Throws Error when all are taken.
  std::uint32_t take_gate();
  void give_back_gate(std::uint32_t gate) noexcept { gates_.give_back(gate); }  // an open one
  driver::CudaAddress gate(std::uint32_t gate) const noexcept { return address(kCounts + gate); }
  // Kernels that begin after it find these gates closed. False: the GPU did not get to it in time.
  // Throws CudaError.
  bool close_gates(const std::vector<std::uint32_t>& gates, const Deadline& deadline) const;

 private:
  bool set(const std::vector<driver::CudaAddress>& words, unsigned char byte,
           const std::string& what, const Deadline& deadline) const;
  driver::CudaAddress address(std::uint32_t word) const noexcept {
    return words_->extent().begin + word * sizeof(std::uint32_t);
  }

  const std::shared_ptr<const GpuWords> words_;
  Places gates_{kGates};
};

}  // namespace zerohop::gpu
