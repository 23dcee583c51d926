#include "gpu/list_copier.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

// A warp copies a piece. Measured on two H200 over NVLink, 64 MiB in all: pieces of 64 KiB reach
// 345 GB/s, 16 KiB 342, 4 KiB 325; fewer pieces than there are warps leave the links idle.
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kLeastBytes = std::uint64_t{4} << 10;
constexpr std::uint64_t kWarps = 1024;

// Of the first of several launches: it begins while the CPU writes down the rest.
constexpr std::uint32_t kFirst = 4096;

std::uint64_t piece_nbytes(std::span<const CopyPiece> ranges) {
  std::uint64_t total = 0;
  for (const CopyPiece& range : ranges) total += range.nbytes;
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

void ListCopier::copy(std::span<const CopyPiece> ranges, const Tail& tail,
                      driver::CudaStream stream, const Deadline& deadline) {
  const DeviceGuard guard(*device_);
  const std::uint64_t most = piece_nbytes(ranges);
  List* list = nullptr;
  std::uint32_t count = 0;
  std::uint32_t room = kFirst;
  for (CopyPiece rest : ranges) {
    while (rest.nbytes > 0) {
      if (count == room) {  // more follow: the tail is not for this one
        launch(*std::exchange(list, nullptr), std::exchange(count, 0), {}, stream);
        room = kPieces;
      }
      if (list == nullptr) list = &next_list(deadline);
      const std::uint64_t nbytes = std::min(rest.nbytes, most);
      list->pieces[count++] = {rest.from, rest.to, nbytes};
      rest = {rest.from + nbytes, rest.to + nbytes, rest.nbytes - nbytes};
    }
  }
  if (count > 0) launch(*list, count, tail, stream);
}

ListCopier::List& ListCopier::next_list(const Deadline& deadline) {
  List& list = lists_[next_];
  const driver::Cuda& cuda = device_->cuda();
  for (;;) {  // an event that was never recorded is done
    const driver::CudaResult result = cuda.event_query(list.read.get());
    if (result == driver::kCudaSuccess) break;
    if (result != driver::kCudaErrorNotReady) check_cuda(cuda, result, "cuEventQuery");
    if (deadline.passed()) {
      throw TransferTimeout(
          "the GPU did not make earlier copies in time, so not all of these were "
          "begun: give a longer timeout",
          0, Effect::some);
    }
    std::this_thread::yield();
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
