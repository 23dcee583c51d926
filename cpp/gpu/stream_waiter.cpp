#include "gpu/stream_waiter.hpp"

#include <new>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/user_stream.hpp"

namespace zerohop::gpu {
namespace {

// Pinned memory has the same address for the GPU: unified addressing.
template <typename Word>
driver::CudaAddress address(const Word& word) {
  return reinterpret_cast<driver::CudaAddress>(&word);
}

}  // namespace

StreamWaiter::StreamWaiter(std::shared_ptr<const Device> device)
    : device_(std::move(device)),
      kernels_(Kernels::load(device_)),
      generation_(fork_generation()),
      free_(kMost) {
  const DeviceGuard guard(*device_);
  pages_ = pin_pages(device_->cuda(), kMost * sizeof(Line));
  for (Place place = 0; place < kMost; ++place) new (&line(place)) Line();
  idle_ = make_stream(device_->cuda());
  std::iota(free_.rbegin(), free_.rend(), 0);
}

StreamWaiter::~StreamWaiter() {
  if (generation_ == fork_generation()) {
    try {
      const DeviceGuard guard(*device_);
      idle_.reset();
      pages_.reset();
      return;
    } catch (const CudaError&) {
      // The context is gone, as at process exit.
    }
  }
  (void)idle_.release();
  (void)pages_.release();
}

StreamWaiter::Place StreamWaiter::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    throw Error("too many streams of " + device_->facts().device_name() +
                " wait: let some of them end first");
  }
  const Place place = free_.back();
  free_.pop_back();
  line(place).outcome.store(kWaiting, std::memory_order_relaxed);
  line(place).given_up.store(0, std::memory_order_relaxed);
  line(place).number.fetch_add(1, std::memory_order_relaxed);
  return place;
}

void StreamWaiter::give_back(Place place) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(place);  // it never grows beyond its first size
}

void StreamWaiter::begin(Place place, Wait wait, driver::CudaStream stream) {
  wait.given_up = address(line(place).given_up);
  wait.outcome = address(line(place).outcome);
  const DeviceGuard guard(*device_);
  check_stream(*device_, stream);
  kernels_->wait_word(wait, stream);
}

StreamWaiter::Result StreamWaiter::result(Place place) const noexcept {
  const Note found = line(place).outcome.load(std::memory_order_acquire);
  const std::uint32_t told = tag_of(found);
  if (told >= kFirstTag) return {kCame, value_of(found), told};
  return {static_cast<Outcome>(told), value_of(found), 0};
}

void StreamWaiter::give_up(Place place) noexcept {
  line(place).given_up.store(1, std::memory_order_release);
}

StreamWaiter::Gate StreamWaiter::gate(Place place) const noexcept {
  return {.place = place, .number = line(place).number.load(std::memory_order_relaxed)};
}

driver::CudaAddress StreamWaiter::word(const Gate& gate) const noexcept {
  return address(line(gate.place).gate);
}

// Never back: the place may have been taken anew since.
void StreamWaiter::open(const Gate& gate) noexcept {
  auto& word = line(gate.place).gate;
  std::uint32_t found = word.load(std::memory_order_relaxed);
  while (static_cast<std::int32_t>(gate.number - found) > 0 &&
         !word.compare_exchange_weak(found, gate.number, std::memory_order_release)) {
  }
}

driver::CudaResult StreamWaiter::query() const noexcept {
  try {
    const DeviceGuard guard(*device_);
    return device_->cuda().stream_query(idle_.get());
  } catch (const CudaError& error) {
    return error.code();
  }
}

}  // namespace zerohop::gpu
