#include "gpu/copy_stream.hpp"

#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

// A copy engine takes 2 us for each range, whatever its size; a launch of the kernel takes 2.5 us
// for thousands. Engines are faster from some MiB on and leave the GPU's cores alone.
constexpr std::size_t kFewRanges = 2;
constexpr std::uint64_t kLongRange = std::uint64_t{4} << 20;

bool suits_engine(std::span<const CopyPiece> ranges) {
  if (ranges.size() <= kFewRanges) return true;
  std::uint64_t nbytes = 0;
  for (const CopyPiece& range : ranges) nbytes += range.nbytes;
  return nbytes / ranges.size() >= kLongRange;
}

}  // namespace

CopyStream::CopyStream(std::shared_ptr<const Device> device)
    : device_(std::move(device)), generation_(fork_generation()) {
  const DeviceGuard guard(*device_);
  const driver::Cuda& cuda = device_->cuda();
  page_ = pin_pages(cuda, sizeof(Word));
  new (page_.get()) Word(0);
  stream_ = make_stream(cuda);
  before_ = make_event(cuda);
}

CopyStream::~CopyStream() {
  try {
    if (generation_ == fork_generation()) {
      const DeviceGuard guard(*device_);
      if (query() == driver::kCudaSuccess) {
        lists_.reset();
        before_.reset();
        stream_.reset();
        page_.reset();
        return;
      }
    }
  } catch (const CudaError&) {
    // The context is gone, as at process exit.
  }
  // CUDA does not survive fork(), nor a context its end; and what may still be written stays.
  (void)lists_.release();
  (void)before_.release();
  (void)stream_.release();
  (void)page_.release();
}

void CopyStream::follow(driver::CudaStream stream) {
  const DeviceGuard guard(*device_);
  const driver::Cuda& cuda = device_->cuda();
  check_cuda(cuda, cuda.event_record(before_.get(), stream), "cuEventRecord");
  check_cuda(cuda, cuda.stream_wait_event(stream_.get(), before_.get(), 0), "cuStreamWaitEvent");
}

std::uint32_t CopyStream::copy(std::span<const CopyPiece> ranges, const Deadline& deadline) {
  const DeviceGuard guard(*device_);
  const driver::Cuda& cuda = device_->cuda();
  if (no_kernels_ || suits_engine(ranges)) {
    copy_by_engine(ranges);
  } else {
    copy_by_kernel(ranges, deadline);
  }
  // Pinned memory has the same address for the GPU. The write comes behind a barrier: who sees the
  // word sees what was copied (CUDA Driver API, cuStreamWriteValue32).
  check_cuda(
      cuda,
      cuda.stream_write_value(stream_.get(), reinterpret_cast<driver::CudaAddress>(page_.get()),
                              last_ + 1, driver::kCudaWriteValueDefault),
      "cuStreamWriteValue32");
  return ++last_;
}

void CopyStream::copy_by_engine(std::span<const CopyPiece> ranges) {
  const driver::Cuda& cuda = device_->cuda();
  for (const CopyPiece& range : ranges) {
    check_cuda(cuda, cuda.copy(range.to, range.from, range.nbytes, stream_.get()), "cuMemcpyAsync");
  }
}

void CopyStream::copy_by_kernel(std::span<const CopyPiece> ranges, const Deadline& deadline) {
  if (!lists_) {
    try {
      lists_ = std::make_unique<ListCopier>(device_);
    } catch (const RouteUnavailable&) {
      no_kernels_ = true;
      return copy_by_engine(ranges);
    }
  }
  lists_->copy(ranges, stream_.get(), deadline);
}

driver::CudaResult CopyStream::query() noexcept {
  try {
    const DeviceGuard guard(*device_);
    return device_->cuda().stream_query(stream_.get());
  } catch (const CudaError& error) {
    return error.code();
  }
}

}  // namespace zerohop::gpu
