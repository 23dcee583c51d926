#include "gpu/list_copier.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/spin_wait.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

// A warp copies one piece. Measured on two H200 over NVLink, 64 MiB in all: pieces of 64 KiB reach
// 345 GB/s, 16 KiB 342, 4 KiB 325; fewer pieces than warps leave the links idle.
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kLeastBytes = std::uint64_t{4} << 10;
constexpr std::uint64_t kWarps = 1024;

// Size of the first launch. Each next one is three times as large, so that the CPU has written its
// list when the GPU finishes the previous one.
constexpr std::uint32_t kFirst = 1024;
constexpr std::uint32_t kGrowth = 3;

std::uint64_t piece_nbytes(std::uint64_t total) {
  std::uint64_t nbytes = kMostBytes;
  while (nbytes > kLeastBytes && total / nbytes < kWarps) nbytes /= 2;
  return nbytes;
}

}  // namespace

ListCopier::ListCopier(std::shared_ptr<const Device> device, std::shared_ptr<const Kernels> kernels)
    : device_(std::move(device)), kernels_(std::move(kernels)) {
  const driver::Cuda& cuda = device_->cuda();
  const DeviceGuard guard(*device_);
  pages_ = pin_pages(cuda, std::size_t{kLists} * kPieces * sizeof(CopyPiece));
  auto* const pieces = static_cast<CopyPiece*>(pages_.get());
  lists_.reserve(kLists);
  for (std::size_t i = 0; i < kLists; ++i) {
    lists_.push_back({pieces + i * kPieces, make_event(cuda)});
  }
}

void ListCopier::copy(PieceSource& pieces, std::uint64_t nbytes, const Tail& tail,
                      driver::CudaStream stream, const Deadline& deadline) {
  const std::uint64_t most = piece_nbytes(nbytes);
  for (std::uint32_t room = kFirst; pieces.more(); room = std::min(kGrowth * room, kPieces)) {
    List& list = next_list(deadline);
    const std::uint32_t count = pieces.fill(list.pieces, room, most);
    launch(list, count, pieces.more() ? Tail{} : tail, stream);
  }
}

ListCopier::List& ListCopier::next_list(const Deadline& deadline) {
  List& list = lists_[next_];
  const driver::Cuda& cuda = device_->cuda();
  for (SpinWait wait;; wait.pause()) {  // an event that was never recorded is done
    const driver::CudaResult result = cuda.event_query(list.read.get());
    if (result == driver::kCudaSuccess) break;
    if (result != driver::kCudaErrorNotReady) check_cuda(cuda, result, "cuEventQuery");
    if (deadline.passed()) {
      throw TransferTimeout(
          "the GPU did not make earlier copies in time, so not all of these were "
          "begun: give a longer timeout",
          0, Effect::some);
    }
  }
  next_ = (next_ + 1) % lists_.size();
  return list;
}

void ListCopier::launch(List& list, std::uint32_t count, const Tail& tail,
                        driver::CudaStream stream) {
  const driver::Cuda& cuda = device_->cuda();
  // Pinned memory has the same address for the GPU: unified addressing.
  kernels_->copy_pieces(reinterpret_cast<driver::CudaAddress>(list.pieces), count, tail, stream);
  check_cuda(cuda, cuda.event_record(list.read.get(), stream), "cuEventRecord");
}

}  // namespace zerohop::gpu
