#include "gpu/copy_stream.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

// A copy engine takes 2 us per range, whatever its size, and as long again for the tail; one launch
// covers all. From some MiB on, engines are faster and leave the GPU's cores free.
constexpr std::uint64_t kLong = std::uint64_t{4} << 20;
// Each takes one of the stream's roughly one thousand places; when those are full, the driver
// blocks the caller.
constexpr std::uint32_t kMostByEngine = 32;
// For ranges whose two sides are aligned differently the kernel uses narrow accesses; engines are
// not affected.
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
  parts_->kernels = load_kernels(device_);
  if (!parts_->kernels) parts_->own_tickets = std::make_unique<Tickets>(cuda);
  tickets_ = parts_->kernels ? &parts_->kernels->tickets() : parts_->own_tickets.get();
  parts_->stream = make_stream(cuda);
  parts_->before = make_event(cuda);
}

CopyStream::~CopyStream() {
  // CUDA does not survive fork(), nor its context's end. Leak what may still be written.
  if (generation_ != fork_generation()) {
    (void)parts_.release();
  } else if (left_behind_ || query() != driver::kCudaSuccess) {
    keep_for_good(std::shared_ptr<Parts>(std::move(parts_)));
  } else {
    give_back_apart(device_->ordinal(), destruction(device_, std::move(parts_)));
  }
}

void CopyStream::record(driver::CudaStream stream) {
  const driver::Cuda& cuda = device_->cuda();
  check_cuda(cuda, cuda.event_record(parts_->before.get(), stream), "cuEventRecord");
}

void CopyStream::wait(driver::CudaStream stream) {
  const driver::Cuda& cuda = device_->cuda();
  check_cuda(cuda, cuda.stream_wait_event(stream, parts_->before.get(), 0), "cuStreamWaitEvent");
}

void CopyStream::follow(driver::CudaStream stream) {
  record(stream);
  wait(own());
}

void CopyStream::precede(driver::CudaStream stream) {
  {
    const DeviceGuard guard(*device_);
    record(own());
  }
  wait(stream);
}

Ticket CopyStream::copy(const What& what, const Put& put, driver::CudaStream stream,
                        const Deadline& deadline) {
  const Ticket ticket = tickets_->take();
  try {
    put_in(what,
           {.replaced = put.replaced,
            .mirror = put.mirror,
            .slot = put.slot,
            .done = tickets_->word(ticket),
            .note = put.note,
            .number = ticket.number,
            .place = ticket.place},
           stream, deadline);
  } catch (const TransferTimeout&) {
    tickets_->give_back(ticket);  // its word comes last, so nothing will write it
    throw;
  }  // after another error something may write it: keep the ticket
  return ticket;
}

// The beginning of a list shows whether it consists of only a few ranges.
void CopyStream::put_in(const What& what, const Tail& tail, driver::CudaStream stream,
                        const Deadline& deadline) {
  if (what.pieces == nullptr) return put_in_ranges(what.ranges, tail, stream, deadline);
  std::array<CopyPiece, kMostByEngine> first;
  const std::uint32_t count = what.pieces->fill(first.data(), kMostByEngine, UINT64_MAX);
  const std::span<const CopyPiece> taken(first.data(), count);
  if (!what.pieces->more()) return put_in_ranges(taken, tail, stream, deadline);
  RangeSource beginning(taken);
  JoinedSource all(beginning, *what.pieces);
  if (!parts_->kernels) return copy_by_engine(all, tail, stream);
  put_in_list(all, what.nbytes, tail, stream, deadline);
}

void CopyStream::put_in_ranges(std::span<const CopyPiece> ranges, const Tail& tail,
                               driver::CudaStream stream, const Deadline& deadline) {
  const Way way = parts_->kernels ? best_way(ranges) : Way::engine;
  if (way == Way::few) return parts_->kernels->copy_ranges(few(ranges), tail, stream);
  RangeSource pieces(ranges);
  if (way == Way::engine) return copy_by_engine(pieces, tail, stream);
  put_in_list(pieces, nbytes_of(ranges), tail, stream, deadline);
}

void CopyStream::put_in_list(PieceSource& pieces, std::uint64_t nbytes, const Tail& tail,
                             driver::CudaStream stream, const Deadline& deadline) {
  if (!parts_->lists) parts_->lists = std::make_unique<ListCopier>(device_, parts_->kernels);
  parts_->lists->copy(pieces, nbytes, tail, stream, deadline);
}

// A launch without copies writes the words after the engine's copies. Without kernels, the only
// word is written behind a barrier: whoever sees it sees the copied bytes (CUDA Driver API,
// cuStreamWriteValue32).
void CopyStream::copy_by_engine(PieceSource& pieces, const Tail& tail,
                                driver::CudaStream stream) const {
  const driver::Cuda& cuda = device_->cuda();
  for (CopyPiece piece{}; pieces.fill(&piece, 1, UINT64_MAX) > 0;) {
    check_cuda(cuda, cuda.copy(piece.to, piece.from, piece.nbytes, stream), "cuMemcpyAsync");
  }
  if (parts_->kernels && tail.slot != 0) return parts_->kernels->copy_ranges({}, tail, stream);
  check_cuda(
      cuda, cuda.stream_write_value(stream, tail.done, tail.number, driver::kCudaWriteValueDefault),
      "cuStreamWriteValue32");
}

driver::CudaResult CopyStream::query() noexcept {
  try {
    const DeviceGuard guard(*device_);
    return device_->cuda().stream_query(own());
  } catch (const CudaError& error) {
    return error.code();
  }
}

}  // namespace zerohop::gpu
