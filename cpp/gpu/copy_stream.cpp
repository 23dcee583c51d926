#include "gpu/copy_stream.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

// A copy engine takes 2 us for each range, whatever its size, and as long again for the tail; one
// launch does it all. Engines are faster from some MiB on and leave the GPU's cores alone.
constexpr std::uint64_t kLong = std::uint64_t{4} << 20;
// Each takes a place in the stream, of about a thousand, beyond which the driver makes its caller
// wait.
constexpr std::size_t kMostByEngine = 32;
// The kernel copies ranges that are not aligned alike by narrow accesses, the engine does not care.
constexpr std::uint64_t kLongIfCrooked = std::uint64_t{64} << 10;

enum class Way { few, list, engine };

std::shared_ptr<const Kernels> load_kernels(const std::shared_ptr<const Device>& device) {
  try {
    return Kernels::load(device);
  } catch (const RouteUnavailable&) {
    return nullptr;  // this build has none
  }
}

std::uint64_t nbytes_of(std::span<const CopyPiece> ranges) {
  std::uint64_t nbytes = 0;
  for (const CopyPiece& range : ranges) nbytes += range.nbytes;
  return nbytes;
}

Way best_way(std::span<const CopyPiece> ranges) {
  const std::uint64_t nbytes = nbytes_of(ranges);
  const bool crooked = std::ranges::any_of(
      ranges, [](const CopyPiece& range) { return (range.from ^ range.to) % 16 != 0; });
  if (ranges.size() > FewRanges::kMost && nbytes > 0) {
    const bool long_ones = ranges.size() <= kMostByEngine && nbytes / ranges.size() >= kLong;
    return long_ones ? Way::engine : Way::list;
  }
  const std::uint64_t most = crooked ? kLongIfCrooked : kLong;
  return nbytes >= most * std::max<std::size_t>(ranges.size(), 1) ? Way::engine : Way::few;
}

FewRanges few(std::span<const CopyPiece> ranges) {
  FewRanges all;
  for (const CopyPiece& range : ranges) {
    if (range.nbytes == 0) continue;
    all.from[all.count] = range.from;
    all.to[all.count] = range.to;
    all.nbytes[all.count++] = range.nbytes;
  }
  return all;
}

}  // namespace

CopyStream::CopyStream(std::shared_ptr<const Device> device)
    : device_(std::move(device)), generation_(fork_generation()) {
  const DeviceGuard guard(*device_);
  const driver::Cuda& cuda = device_->cuda();
  kernels_ = load_kernels(device_);
  if (!kernels_) own_tickets_ = std::make_unique<Tickets>(cuda);
  tickets_ = kernels_ ? &kernels_->tickets() : own_tickets_.get();
  stream_ = make_stream(cuda);
  before_ = make_event(cuda);
}

CopyStream::~CopyStream() {
  try {
    if (!left_behind_ && generation_ == fork_generation()) {
      const DeviceGuard guard(*device_);
      if (query() == driver::kCudaSuccess) {
        lists_.reset();
        before_.reset();
        stream_.reset();
        own_tickets_.reset();
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
  (void)own_tickets_.release();
  new auto(kernels_);
}

void CopyStream::record(driver::CudaStream stream) {
  const DeviceGuard guard(*device_);
  const driver::Cuda& cuda = device_->cuda();
  check_cuda(cuda, cuda.event_record(before_.get(), stream), "cuEventRecord");
}

// The default streams have the same handles on every GPU.
void CopyStream::wait(const Device& device, driver::CudaStream stream) {
  const DeviceGuard guard(device);
  const driver::Cuda& cuda = device.cuda();
  check_cuda(cuda, cuda.stream_wait_event(stream, before_.get(), 0), "cuStreamWaitEvent");
}

void CopyStream::follow(driver::CudaStream stream) {
  record(stream);
  wait(*device_, own());
}

void CopyStream::precede(const Device& device, driver::CudaStream stream) {
  record(own());
  wait(device, stream);
}

Ticket CopyStream::copy(const What& what, const Put& put, driver::CudaStream stream,
                        const Deadline& deadline) {
  const DeviceGuard guard(*device_);
  const Ticket ticket = tickets_->take();
  try {
    put_in(what,
           {.replaced = put.replaced,
            .twin = put.twin,
            .slot = put.slot,
            .done = tickets_->word(ticket),
            .note = put.note,
            .number = ticket.number,
            .place = ticket.place},
           stream, deadline);
  } catch (const TransferTimeout&) {
    tickets_->give_back(ticket);  // its word comes last, so nothing will write it
    throw;
  }  // after another error something may: the ticket stays out
  return ticket;
}

void CopyStream::put_in(const What& what, const Tail& tail, driver::CudaStream stream,
                        const Deadline& deadline) {
  RangeSource ranges(what.ranges);
  PieceSource& pieces = what.pieces != nullptr ? *what.pieces : ranges;
  if (!kernels_) return copy_by_engine(pieces, tail, stream);
  if (what.pieces != nullptr) return put_in_list(pieces, what.nbytes, tail, stream, deadline);
  switch (best_way(what.ranges)) {
    case Way::engine: return copy_by_engine(pieces, tail, stream);
    case Way::few: return kernels_->copy_ranges(few(what.ranges), tail, stream);
    case Way::list: return put_in_list(pieces, nbytes_of(what.ranges), tail, stream, deadline);
  }
}

void CopyStream::put_in_list(PieceSource& pieces, std::uint64_t nbytes, const Tail& tail,
                             driver::CudaStream stream, const Deadline& deadline) {
  if (!lists_) lists_ = std::make_unique<ListCopier>(device_, kernels_);
  lists_->copy(pieces, nbytes, tail, stream, deadline);
}

// A launch without copies puts the words, behind those of the engine; without kernels the only word
// is written behind a barrier: who sees it sees what was copied (CUDA Driver API,
// cuStreamWriteValue32).
void CopyStream::copy_by_engine(PieceSource& pieces, const Tail& tail,
                                driver::CudaStream stream) const {
  const driver::Cuda& cuda = device_->cuda();
  for (CopyPiece piece{}; pieces.fill(&piece, 1, UINT64_MAX) > 0;) {
    check_cuda(cuda, cuda.copy(piece.to, piece.from, piece.nbytes, stream), "cuMemcpyAsync");
  }
  if (kernels_ && tail.slot != 0) return kernels_->copy_ranges({}, tail, stream);
  check_cuda(
      cuda, cuda.stream_write_value(stream, tail.done, tail.number, driver::kCudaWriteValueDefault),
      "cuStreamWriteValue32");
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
