#include "gpu/group.hpp"

#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/fork.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/apart.hpp"
#include "gpu/capture.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/stream_wait.hpp"
#include "gpu/user_stream.hpp"

namespace zerohop::gpu {
namespace {

using driver::check_cuda;

// Pinned memory has the same address for the GPU: unified addressing.
template <typename Word>
std::uint64_t address(const Word& word) {
  return reinterpret_cast<std::uint64_t>(&word);
}

}  // namespace

Group::Group(std::shared_ptr<const Device> device)
    : device_(std::move(device)), generation_(fork_generation()) {
  const DeviceGuard guard(*device_);
  const driver::Cuda& cuda = device_->cuda();
  parts_->kernels = Kernels::load(device_);
  parts_->words = pin_pages(cuda, sizeof(Words));
  new (parts_->words.get()) Words();
  parts_->stream = make_stream(cuda);
  parts_->before = make_event(cuda);
  parts_->last = make_event(cuda);
}

Group::~Group() {
  if (generation_ != fork_generation()) {
    (void)parts_.release();  // CUDA does not survive fork()
  } else {
    give_back_apart(device_->ordinal(), destruction(device_, std::move(parts_)));
  }
}

std::optional<std::uint32_t> Group::launch(Launch launch, std::optional<driver::CudaStream> given) {
  launch.call.cancelled = address(words().cancelled);
  launch.call.end = address(words().end);
  const driver::Cuda& cuda = device_->cuda();
  const DeviceGuard guard(*device_);
  const bool captured = given && check_capturable(*device_, *given);
  const driver::CudaStream stream = given ? *given : parts_->stream.get();
  const std::lock_guard lock(mutex_);
  if (captured) {
    if (launch.kept) keep_with_graph(device_, stream, std::move(launch.kept));
    parts_->kernels->group(launch.call, launch.by_packets, launch.blocks, stream);
    return std::nullopt;
  }
  if (!given) {
    check_cuda(cuda, cuda.event_record(parts_->before.get(), driver::kCudaLegacyStream),
               "cuEventRecord in the default stream");
    check_cuda(cuda, cuda.stream_wait_event(stream, parts_->before.get(), 0), "cuStreamWaitEvent");
  }
  if (launched_ != 0) {
    check_cuda(cuda, cuda.stream_wait_event(stream, parts_->last.get(), 0), "cuStreamWaitEvent");
  }
  parts_->kernels->group(launch.call, launch.by_packets, launch.blocks, stream);
  ++launched_;
  check_cuda(cuda,
             cuda.stream_write_value(stream, address(words().ended), launched_,
                                     driver::kCudaWriteValueDefault),
             "cuStreamWriteValue32");
  check_cuda(cuda, cuda.event_record(parts_->last.get(), stream), "cuEventRecord");
  return launched_;
}

bool Group::close(std::uint64_t arena, const Deadline& deadline) {
  const driver::Cuda& cuda = device_->cuda();
  const DeviceGuard guard(*device_);
  const Stream stream = make_stream(cuda);
  check_cuda(cuda,
             cuda.memory_set(arena + GroupArena::kBroken, 1, sizeof(std::uint32_t), stream.get()),
             "cuMemsetD8Async");
  return wait_stream(*device_, stream.get(), "the end of a group of GPUs", deadline);
}

// Reads `ended` first. A call can be cut short only after `cancelled` was set, by cancel() or
// before close(), and then ends later still: if `cancelled` is not set now, it was not when any of
// the calls counted in `now` ended. The kernels look at it only now and then: whether they have
// seen it does not matter, nor that others may cancel meanwhile. Likewise a call that fails says so
// in `end` before it ends.
std::uint32_t Group::ended_well() noexcept {
  const std::uint32_t now = ended();
  std::uint32_t known = ended_well_.load();
  if (words().cancelled.load() != 0 || failure().what != GroupEnd::fine) return known;
  while (static_cast<std::int32_t>(now - known) > 0) {  // other threads look as well
    if (ended_well_.compare_exchange_weak(known, now)) return now;
  }
  return known;
}

GroupEnd Group::failure() const noexcept {
  GroupEnd end;
  std::memcpy(&end, &words().end, sizeof end);  // stored as a whole, before the kernel ended
  return end;
}

}  // namespace zerohop::gpu
