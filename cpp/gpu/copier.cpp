#include "gpu/copier.hpp"

#include <chrono>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/apart.hpp"
#include "gpu/copy_slots.hpp"
#include "gpu/device_guard.hpp"

namespace zerohop::gpu {
namespace {

using Clock = std::chrono::steady_clock;
// Shorter than the five seconds after which peers consider this process lost.
constexpr std::chrono::seconds kPatience{4};

}  // namespace

class Copier::Lane final : public driver::CopyLane {
 public:
  // The caller has made the device current, here and in the destructor.
  Lane(const Device& device, std::size_t chunk_nbytes)
      : device_(device), slots_(device.cuda(), kChunks, chunk_nbytes) {
    chunks_ = slots_.pages();
    chunk_nbytes_ = chunk_nbytes;
  }

  int start_to_host(std::byte* host, std::uint64_t from, std::size_t nbytes) noexcept override {
    return hung_ ? driver::kCudaErrorTimeout : slots_.to_host(host, from, nbytes);
  }
  int start_to_device(std::uint64_t to, const std::byte* host,
                      std::size_t nbytes) noexcept override {
    return hung_ ? driver::kCudaErrorTimeout : slots_.to_device(to, host, nbytes);
  }
  int mark(unsigned i) noexcept override { return slots_.mark(i); }
  int wait(unsigned i) noexcept override {
    if (hung_) return driver::kCudaErrorTimeout;
    const auto end = Clock::now() + kPatience;
    int result = driver::kCudaErrorNotReady;
    while ((result = slots_.query(i)) == driver::kCudaErrorNotReady) {
      if (Clock::now() > end) {
        hung_ = true;  // copies may still run: never use the chunks again
        return driver::kCudaErrorTimeout;
      }
    }
    return result;
  }

  // Called by the thread that holds the lane.
  int enter() noexcept {
    try {
      guard_.emplace(device_);
      return 0;
    } catch (const CudaError& error) {
      return error.code();
    }
  }
  void leave() noexcept { guard_.reset(); }

 private:
  const Device& device_;
  CopySlots slots_;
  std::optional<DeviceGuard> guard_;
  bool hung_ = false;
};

Copier::Copier(std::shared_ptr<const Device> device, std::size_t chunk_nbytes)
    : device_(std::move(device)), generation_(fork_generation()) {
  const DeviceGuard guard(*device_);
  for (unsigned i = 0; i < kLanes; ++i) {
    lanes_.push_back(std::make_unique<Lane>(*device_, chunk_nbytes));
    free_.push_back(lanes_.back().get());
  }
}

Copier::~Copier() {
  for (std::unique_ptr<Lane>& lane : lanes_) {
    if (generation_ == fork_generation()) {
      gpu::give_back(device_->ordinal(), destruction<Lane>(device_, std::move(lane)));
    } else {
      (void)lane.release();  // CUDA does not survive fork()
    }
  }
}

int Copier::take(driver::CopyLane*& lane) noexcept {
  Lane* mine = nullptr;
  {
    std::unique_lock lock(mutex_);
    given_back_.wait(lock, [this] { return !free_.empty(); });
    mine = free_.back();
    free_.pop_back();
  }
  if (const int error = mine->enter(); error != 0) {
    give_back(*mine);
    return error;
  }
  lane = mine;
  return 0;
}

void Copier::give_back(driver::CopyLane& lane) noexcept {
  auto& mine = static_cast<Lane&>(lane);
  mine.leave();
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(&mine);  // within the initial capacity
  }
  given_back_.notify_one();
}

}  // namespace zerohop::gpu
