#include "engine/gpu_copies.hpp"

#include <utility>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"

namespace zerohop::engine {
namespace {

// A GPU that failed writes no word: the driver is asked so often whether it did.
constexpr std::chrono::milliseconds kBetweenQueries{1};

Failure copy_failure(const driver::Cuda& cuda, driver::CudaResult error) {
  try {
    driver::check_cuda(cuda, error, "the GPU's copy to or from the peer's memory");
    throw Error("");  // not reached: it is an error
  } catch (const CudaError& known) {
    return {.kind = Failure::Kind::cuda,
            .message = known.what() + effect_words(Effect::some),
            .code = error,
            .effect = Effect::some};
  }
}

}  // namespace

GpuCopies::~GpuCopies() {
  for (auto& [ordinal, lane] : lanes_) {
    if (!lane->entries.empty() && lane->stream.query() != driver::kCudaSuccess) {
      (void)lane.release();
    }
  }
}

void GpuCopies::begin(const std::shared_ptr<const gpu::Device>& device,
                      std::span<const gpu::CopyPiece> ranges, Work work, const Deadline& deadline) {
  const std::lock_guard lock(mutex_);
  auto& lane = lanes_[device->ordinal()];
  if (!lane) lane = std::make_unique<Lane>(device);
  Entry& entry = lane->entries.emplace_back(std::nullopt, std::move(work));
  pending_.fetch_add(1, std::memory_order_release);
  try {
    lane->stream.follow(driver::kCudaLegacyStream);
    entry.number = lane->stream.copy(ranges, deadline);
  } catch (...) {
    entry.work.transfer = nullptr;
    entry.work.finish = nullptr;
    throw;
  }
}

void GpuCopies::poll() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (const auto& [ordinal, lane] : lanes_) {
    if (lane && !lane->entries.empty()) poll(*lane);
  }
}

void GpuCopies::poll(Lane& lane) noexcept {
  auto& entries = lane.entries;
  while (!entries.empty() && entries.front().number && lane.stream.done(*entries.front().number)) {
    end_first(lane, driver::kCudaSuccess);
  }
  if (entries.empty()) return;
  const auto now = Clock::now();
  if (now - lane.asked < kBetweenQueries) return;
  lane.asked = now;
  const driver::CudaResult result = lane.stream.query();
  if (result == driver::kCudaErrorNotReady) return;
  while (!entries.empty()) end_first(lane, result);
}

// Its place in the order of notifications: ended before the next one is looked at.
void GpuCopies::end_first(Lane& lane, driver::CudaResult error) noexcept {
  Entry entry = std::move(lane.entries.front());
  lane.entries.pop_front();
  if (entry.work.transfer && error != driver::kCudaSuccess) {
    entry.work.transfer->fail(copy_failure(lane.stream.device().cuda(), error));
    entry.work.transfer->drop();
  } else if (entry.work.transfer) {
    entry.work.finish();
  }
  entry.work.kept.clear();  // before others see that nothing is pending
  pending_.fetch_sub(1, std::memory_order_release);
}

void GpuCopies::cut_off(const std::function<Failure(Effect)>& failure) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [ordinal, lane] : lanes_) {
    if (!lane) continue;
    for (Entry& entry : lane->entries) {
      if (!entry.work.transfer) continue;
      entry.work.transfer->fail(failure(Effect::some));
      entry.work.transfer->drop();
      entry.work.transfer = nullptr;
      entry.work.finish = nullptr;
    }
  }
}

}  // namespace zerohop::engine
