#include "engine/gpu_copies.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"

namespace zerohop::engine {
namespace {

// A GPU that failed writes no word: the driver is asked so often whether it did.
constexpr std::chrono::milliseconds kBetweenQueries{1};
// A peer is lost within five seconds, four of which its silence may take.
constexpr std::chrono::seconds kWhenCutOff{1};
// Under way at once: a stream takes about a thousand operations before the driver makes its caller
// wait, for as long as it likes.
constexpr int kMost = 200;

Failure copy_failure(const driver::Cuda& cuda, driver::CudaResult error) {
  try {
    driver::check_cuda(cuda, error, "the GPU's copy to or from the peer's memory");
  } catch (const CudaError&) {
    Failure failure = Failure::of_current_exception();
    failure.set_effect(Effect::some);
    return failure;
  }
  return {};
}

[[noreturn]] void throw_no_room() {
  throw TransferTimeout(
      "the GPU did not make earlier copies in time, so nothing was transferred: give a longer "
      "timeout");
}

}  // namespace

GpuCopies::GpuCopies(std::shared_ptr<Poller> poller, std::function<void()> look)
    : poller_(std::move(poller)), look_(std::move(look)), generation_(fork_generation()) {}

GpuCopies::~GpuCopies() {
  const bool own = generation_ == fork_generation();
  for (Entry& entry : entries_) {
    if (own && entry.lane->stream.query() == driver::kCudaSuccess) continue;
    new auto(std::move(entry.work.kept));  // CUDA does not survive fork(), nor end what hangs
  }
}

std::shared_ptr<GpuCopies::Lane> GpuCopies::lane_of(
    const std::shared_ptr<const gpu::Device>& device) {
  const std::lock_guard lock(mutex_);
  auto& lane = lanes_[device->ordinal()];
  if (!lane) lane = std::make_shared<Lane>(device);
  return lane;
}

void GpuCopies::wait_for_room(const Deadline& deadline) {
  const auto room = [this] { return pending_.load(std::memory_order_relaxed) < kMost; };
  if (!room() && !poller_->wait(room, deadline)) throw_no_room();
}

GpuCopies::Place GpuCopies::put(const std::shared_ptr<Lane>& lane, Work&& work) {
  if (!polled_.exchange(true)) poller_->add(shared_from_this());
  Place place;
  {
    const std::lock_guard lock(mutex_);
    place = entries_.insert(entries_.end(), {.lane = lane, .work = std::move(work)});
  }
  if (pending_.fetch_add(1, std::memory_order_release) == 0) look_();
  return place;
}

void GpuCopies::settle(Place place, State state, std::uint32_t number) noexcept {
  const std::lock_guard lock(mutex_);
  place->state = state;
  place->number = number;
  if (state != State::broken) return;
  place->work.transfer = nullptr;  // the caller has the exception
  place->work.finish = nullptr;
}

void GpuCopies::begin(const std::shared_ptr<const gpu::Device>& device,
                      std::span<const gpu::CopyPiece> ranges, Work work, const Deadline& deadline) {
  wait_for_room(deadline);
  const std::shared_ptr<Lane> lane = lane_of(device);
  // Not by try_lock_until(), which ThreadSanitizer does not know.
  if (!poller_->wait([&] { return lane->submission.try_lock(); }, deadline)) throw_no_room();
  const std::shared_ptr<void> wake(nullptr, [this](void*) { poller_->wake(); });  // once unlocked
  const std::lock_guard submission(lane->submission, std::adopt_lock);
  const Place place = put(lane, std::move(work));
  try {
    lane->stream.follow(driver::kCudaLegacyStream);
    settle(place, State::begun, lane->stream.copy(ranges, deadline));
  } catch (...) {
    settle(place, State::broken, 0);
    throw;
  }
}

void GpuCopies::poll() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const auto now = Clock::now();
  while (!entries_.empty()) {
    const Entry& first = entries_.front();
    if (first.state == State::beginning) break;
    const bool done = first.state == State::begun && first.lane->stream.done(first.number);
    const driver::CudaResult result = done ? driver::kCudaSuccess : ask(first, now);
    if (result == driver::kCudaErrorNotReady) break;
    end_first(result);
  }
  if (cut_off_ && now > patience_ends_) fail_cut_off();
}

driver::CudaResult GpuCopies::ask(const Entry& entry, Clock::time_point now) noexcept {
  Lane& lane = *entry.lane;
  if (now - lane.asked < kBetweenQueries) return driver::kCudaErrorNotReady;
  const driver::CudaResult result = lane.stream.query();
  if (result == driver::kCudaErrorNotReady) lane.asked = now;
  return result;
}

void GpuCopies::end_first(driver::CudaResult result) noexcept {
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  entry.work.kept.clear();  // before others can know that it is done
  if (entry.work.transfer && result != driver::kCudaSuccess) {
    entry.work.transfer->fail(copy_failure(entry.lane->stream.device().cuda(), result));
    entry.work.transfer->drop();
  } else if (entry.work.transfer) {
    entry.work.finish();
  }
  pending_.fetch_sub(1, std::memory_order_release);
  poller_->wake();
}

void GpuCopies::fail_cut_off() noexcept {
  for (Entry& entry : entries_) {
    if (!entry.work.transfer) continue;
    entry.work.transfer->fail(*cut_off_);
    entry.work.transfer->drop();
    entry.work.transfer = nullptr;
    entry.work.finish = nullptr;
  }
}

void GpuCopies::cut_off(Failure failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (cut_off_) return;
  cut_off_ = std::move(failure);
  patience_ends_ = Clock::now() + kWhenCutOff;
}

}  // namespace zerohop::engine
