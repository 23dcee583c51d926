#include "engine/stream/note_mirrors.hpp"

#include "base/error.hpp"
#include "driver/cuda_constants.hpp"
#include "engine/stream/gpu_packer.hpp"
#include "gpu/peer_link.hpp"

namespace zerohop::engine {
namespace {

// If the GPU is busy for longer, there are no mirrors.
constexpr Deadline::Seconds kPatience{1.0};

}  // namespace

void NoteMirrors::settle(const std::shared_ptr<const gpu::Device>& device) noexcept {
  const std::lock_guard lock(mutex_);
  if (words_ || !why_none_.empty()) return;
  try {
    make(device);
  } catch (const std::exception& error) {
    set_none(error.what());
  }
}

void NoteMirrors::make(const std::shared_ptr<const gpu::Device>& device) {
  if (!exposures_) return set_none("no process of this host can put notes");
  kernels_ = gpu::Kernels::load(device);  // without kernels no GPU puts any
  auto words = gpu::GpuWords::create(device, sizeof(BoardPages::notes), Deadline::after(kPatience));
  const Extent& extent = words->extent();
  auto exposure =
      exposures_->expose({.begin = extent.begin, .end = extent.end, .writable = true},
                         {.memfd = -1, .packer = std::make_shared<const GpuPacker>(device)}, words);
  if (!exposure) return set_none("this Endpoint exposes too much memory already");
  shared().key = exposure->key();
  shared().address = extent.begin;
  std::uint32_t state = BoardPages::Mirrors::unsettled;
  if (!shared().state.compare_exchange_strong(state, BoardPages::Mirrors::there)) {
    return set_none("a peer's GPU had put notes before");
  }
  words_ = std::move(words);
  exposure_ = std::move(exposure);
}

void NoteMirrors::set_none(const std::string& reason) {
  why_none_ = reason;
  std::uint32_t state = BoardPages::Mirrors::unsettled;
  shared().state.compare_exchange_strong(state, BoardPages::Mirrors::none);
}

NoteMirrors::Place NoteMirrors::of(const std::shared_ptr<const gpu::Device>& device) {
  const std::lock_guard lock(mutex_);
  if (!words_) return {};
  const std::uint64_t address = words_->extent().begin;
  if (words_->device()->ordinal() == device->ordinal()) return {address, words_};
  auto& memory = reached_[device->ordinal()];
  try {
    if (!memory) memory = reach(device);
  } catch (const CudaError& error) {
    throw RouteUnavailable(device->facts().device_name() + " does not reach " +
                           words_->device()->facts().device_name() +
                           ", where this Endpoint keeps notifications for streams (" +
                           error.what() +
                           "): wait for them on the CPU, or in a stream of that GPU");
  }
  return {memory->at(address), memory};
}

// A stream takes a note, and a GPU puts one, with an atomic.
std::shared_ptr<const gpu::PeerMemory> NoteMirrors::reach(
    const std::shared_ptr<const gpu::Device>& device) const {
  if (!gpu::has_native_atomics(*device, words_->device()->handle())) {
    throw CudaError("there are no native atomics between the two", driver::kCudaErrorNotSupported);
  }
  return gpu::PeerMemory::own(device, words_->device(), words_->extent());
}

std::string NoteMirrors::where() const {
  const std::lock_guard lock(mutex_);
  if (words_) return "in the memory of " + words_->device()->facts().device_name();
  return "in host memory" + (why_none_.empty() ? "" : " (" + why_none_ + ")");
}

}  // namespace zerohop::engine
