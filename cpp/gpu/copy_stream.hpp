// Copies between addresses that one GPU reaches, in the order of a stream of their own, and a word
// of host memory by which the CPU sees, without a call of the driver, how far they are.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/deadline.hpp"
#include "gpu/copy_piece.hpp"
#include "gpu/handles.hpp"
#include "gpu/list_copier.hpp"

namespace zerohop::gpu {

// Not thread safe, but for done().
class CopyStream {
 public:
  // Throws CudaError.
  explicit CopyStream(std::shared_ptr<const Device> device);
  // What may still run leaves the stream and the word behind.
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  const Device& device() const noexcept { return *device_; }

  // From now on copies begin once `stream` has done what it was given so far. Throws CudaError.
  void follow(driver::CudaStream stream);

  // Puts the copies of all ranges into the stream, in no order among them, and returns the number
  // by which done() is asked. Waits, until `deadline`, where lists of earlier ones fill up. Throws
  // CudaError, TransferTimeout; what was put in by then will be done.
  std::uint32_t copy(std::span<const CopyPiece> ranges, const Deadline& deadline);

  // Whether the copies of that number, and all before, are placed.
  bool done(std::uint32_t number) const noexcept {
    return static_cast<std::int32_t>(word().load(std::memory_order_acquire) - number) >= 0;
  }
  // Asks the driver: 0, everything is done; kCudaErrorNotReady, it goes on; else what ended it.
  driver::CudaResult query() noexcept;

 private:
  using Word = std::atomic<std::uint32_t>;
  Word& word() const noexcept { return *static_cast<Word*>(page_.get()); }
  void copy_by_engine(std::span<const CopyPiece> ranges);
  void copy_by_kernel(std::span<const CopyPiece> ranges, const Deadline& deadline);

  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  PinnedPages page_;
  Stream stream_;
  Event before_;
  std::uint32_t last_ = 0;  // number
  std::unique_ptr<ListCopier> lists_;
  bool no_kernels_ = false;  // this build has none
};

}  // namespace zerohop::gpu
