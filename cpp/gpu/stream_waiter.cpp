#include "gpu/stream_waiter.hpp"

#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/user_stream.hpp"

namespace zerohop::gpu {
namespace {

// Pinned memory has the same address for the GPU: unified addressing.
template <typename Word>
driver::CudaAddress address(const Word& word) {
  return reinterpret_cast<driver::CudaAddress>(&word);
}

// Bound for zeroing some words on the GPU behind a kernel that keeps it busy.
constexpr Deadline::Seconds kPatience{10.0};

}  // namespace

StreamWaiter::StreamWaiter(std::shared_ptr<const Device> device)
    : device_(std::move(device)), generation_(fork_generation()) {
  const DeviceGuard guard(*device_);
  const driver::Cuda& cuda = device_->cuda();
  parts_->kernels = Kernels::load(device_);
  parts_->pages = pin_pages(cuda, sizeof(Pages));
  new (parts_->pages.get()) Pages();
  parts_->ends = GpuWords::create(device_, sizeof(Pages::ends), Deadline::after(kPatience));
  parts_->stream = make_urgent_stream(cuda);
  parts_->copied = make_event(cuda);
}

StreamWaiter::~StreamWaiter() {
  if (generation_ != fork_generation()) {
    (void)parts_.release();  // CUDA does not survive fork()
  } else if (left_behind_) {
    keep_for_good(std::shared_ptr<Parts>(std::move(parts_)));
  } else {
    give_back_apart(device_->ordinal(), destruction(device_, std::move(parts_)));
  }
}

StreamWaiter::Place StreamWaiter::take() {
  const auto place = places_.take();
  if (!place) {
    throw Error("too many streams of " + device_->facts().device_name() +
                " wait: let some of them end first");
  }
  line(*place).cancelled.store(0, std::memory_order_relaxed);
  line(*place).use.fetch_add(1, std::memory_order_relaxed);
  return *place;
}

void StreamWaiter::begin(Place place, Wait wait, driver::CudaStream stream) {
  wait.cancelled = address(line(place).cancelled);
  wait.end = parts_->ends->extent().begin + place * sizeof(WaitEnd);
  wait.use = line(place).use.load(std::memory_order_relaxed);
  const DeviceGuard guard(*device_);
  check_stream(*device_, stream);
  parts_->kernels->wait_word(wait, stream);
}

StreamWaiter::Result StreamWaiter::result(Place place) const noexcept {
  const auto& [outcome, use] = pages().ends[place];
  if (use != line(place).use.load(std::memory_order_relaxed)) return {kWaiting, 0, 0};
  const std::uint32_t how = tag_of(outcome);
  if (how >= kFirstTag) return {kCame, value_of(outcome), how};
  return {static_cast<Outcome>(how), value_of(outcome), 0};
}

// The stream carries nothing else, so a copy is done within a few us.
driver::CudaResult StreamWaiter::ask_for_ends() noexcept {
  const driver::Cuda& cuda = device_->cuda();
  auto& ends = pages().ends;
  driver::CudaResult result =
      cuda.copy_to_host(ends, parts_->ends->extent().begin, sizeof ends, parts_->stream.get());
  if (result == driver::kCudaSuccess) {
    result = cuda.event_record(parts_->copied.get(), parts_->stream.get());
  }
  return result;
}

driver::CudaResult StreamWaiter::refresh() noexcept {
  try {
    const DeviceGuard guard(*device_);
    driver::CudaResult result = driver::kCudaErrorNotReady;
    if (copying_) {
      result = device_->cuda().event_query(parts_->copied.get());
      copying_ = result == driver::kCudaErrorNotReady;
    } else if (const auto failed = ask_for_ends(); failed != driver::kCudaSuccess) {
      result = failed;
    } else {
      copying_ = true;
    }
    return result;
  } catch (const CudaError& error) {
    return error.code();
  }
}

void StreamWaiter::cancel(Place place) noexcept {
  line(place).cancelled.store(1, std::memory_order_release);
}

StreamWaiter::Gate StreamWaiter::gate(Place place) const noexcept {
  return {.place = place, .number = line(place).use.load(std::memory_order_relaxed)};
}

driver::CudaAddress StreamWaiter::word(const Gate& gate) const noexcept {
  return address(line(gate.place).gate);
}

// Never decreases the word: the place may have been reused since.
void StreamWaiter::open(const Gate& gate) noexcept {
  auto& word = line(gate.place).gate;
  std::uint32_t found = word.load(std::memory_order_relaxed);
  while (static_cast<std::int32_t>(gate.number - found) > 0 &&
         !word.compare_exchange_weak(found, gate.number, std::memory_order_release)) {
  }
}

}  // namespace zerohop::gpu
