#include "engine/stream/stream_waits.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/locks.hpp"
#include "base/report.hpp"
#include "base/seconds.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/apart.hpp"

namespace zerohop::engine {
namespace {

using gpu::StreamWaiter;

// Polling costs driver calls, which may delay posting threads.
constexpr std::chrono::microseconds kBetweenLooks{20};
constexpr std::chrono::milliseconds kBetweenCares{1};  // checks for waits that are in vain
constexpr Deadline::Seconds kToSee{5e-3};              // that a wait has ended: two slices of a GPU

Failure gpu_failure(const driver::Cuda& cuda, driver::CudaResult error) {
  try {
    driver::check_cuda(cuda, error, "a stream's wait on the GPU");
  } catch (const CudaError&) {
    return Failure::of_current_exception();
  }
  return {};
}

}  // namespace

StreamWaits::StreamWaits(Host host) : host_(std::move(host)), generation_(fork_generation()) {}

StreamWaits::~StreamWaits() {
  entries_.splice(entries_.end(), arrivals_);
  if (entries_.empty()) return;
  for (Entry& entry : entries_) {
    if (generation_ != fork_generation()) break;  // belongs to the parent, as do its waiters
    entry.transfer->fail(
        {.message = "the Endpoint was closed before a stream of the program reached "
                    "its wait for " +
                    awaited(entry)});
    entry.transfer->drop();
  }
  new auto(std::move(entries_));  // leak: after fork(), or a hung wait still uses it
  new auto(std::move(waiters_));
}

std::shared_ptr<StreamWaiter> StreamWaits::waiter_of(
    const std::shared_ptr<const gpu::Device>& device) {
  const std::lock_guard lock(mutex_);
  if (closed_) throw Error("this Endpoint is closed: make a new one");
  auto& waiter = waiters_[device->ordinal()];
  if (!waiter) waiter = std::make_shared<StreamWaiter>(device);
  return waiter;
}

std::shared_ptr<Transfer> StreamWaits::notification(const Stream& stream, std::uint32_t slot,
                                                    bool reset) {
  const auto waiter = waiter_of(stream.device);
  Entry entry{.waiter = waiter, .place = waiter->take(), .seconds = stream.seconds};
  return begin(std::move(entry), stream,
               [&](Entry& taken) { return wait_for_slot(taken, stream, slot, reset); });
}

// From now on notes in the slot belong to the stream, until leave_slot().
gpu::Wait StreamWaits::wait_for_slot(Entry& entry, const Stream& stream, std::uint32_t slot,
                                     bool reset) {
  const GpuBoard::Reached board = host_.board->reach(stream.device);
  entry.kept.assign(board.kept.begin(), board.kept.end());
  gpu::Wait wait{.word = board.words + slot * sizeof(std::uint32_t),
                 .note = board.notes + slot * sizeof(gpu::Note),
                 .awaited = gpu::Awaited::slot,
                 .reset = reset ? 1U : 0U};
  std::ranges::copy(host_.board->board().gpu_notes().begin_wait(slot), wait.taken);
  entry.slot = slot;
  entry.resets = reset;
  return wait;
}

void StreamWaits::leave_slot(const Entry& entry, std::uint32_t tag) noexcept {
  if (entry.slot) host_.board->board().gpu_notes().end_wait(*entry.slot, entry.resets ? tag : 0);
}

std::string StreamWaits::awaited(const Entry& entry) {
  if (entry.first) return "a transfer of " + std::to_string(entry.first->nbytes()) + " bytes";
  return "notification slot " + std::to_string(entry.slot.value_or(0));
}

const std::shared_ptr<const Route>& StreamWaits::route_of(const gpu::Device& device,
                                                          bool of_transfer) {
  const std::lock_guard lock(mutex_);
  auto& route = routes_[{device.ordinal(), of_transfer}];
  if (!route) {
    route = std::make_shared<const Route>(
        Route{.kind = "stream",
              .device = device.facts().device_name(),
              .reason = of_transfer
                            ? "a stream waits for a transfer"
                            : "a stream waits for notifications " + host_.board->mirrors().where(),
              .settings = {}});
  }
  return route;
}

std::shared_ptr<Transfer> StreamWaits::transfer(const Stream& stream,
                                                const std::shared_ptr<Transfer>& first) {
  const auto waiter = waiter_of(stream.device);
  return wait_for_transfer({.waiter = waiter, .place = waiter->take(), .first = first}, stream);
}

std::shared_ptr<Transfer> StreamWaits::wait_for_transfer(Entry&& entry, const Stream& stream) {
  entry.seconds = stream.seconds;
  return begin(std::move(entry), stream, [&](Entry& taken) {
    gpu::Wait wait{.awaited = gpu::Awaited::number};
    if (const auto& mark = taken.first->mark()) {  // the GPU itself signals the end
      wait.word = mark->word;
      wait.number = mark->number;
      taken.kept.push_back(mark->owner);
      return wait;
    }
    const StreamWaiter::Gate gate = taken.waiter->gate(taken.place);
    wait.word = taken.waiter->word(gate);
    wait.number = gate.number;
    taken.first->on_done([waiter = taken.waiter, gate] { waiter->open(gate); });
    return wait;
  });
}

template <typename IsMeant>
std::optional<std::uint32_t> StreamWaits::awaited_by(IsMeant is_meant) {
  const auto find = [&]() -> std::optional<std::uint32_t> {
    const std::lock_guard polling(polling_);
    const std::lock_guard lock(mutex_);
    for (const auto* entries : {&entries_, &arrivals_}) {
      for (const Entry& entry : *entries) {
        if (entry.slot && is_meant(entry)) return entry.slot;
      }
    }
    return std::nullopt;
  };
  std::optional<std::uint32_t> found = find();
  const auto has_come = [&] { return !(found = find()); };
  if (found) (void)host_.poller->wait(has_come, Deadline::after(kToSee));
  return found;
}

std::optional<std::uint32_t> StreamWaits::awaited(driver::CudaStream stream) {
  return awaited_by([&](const Entry& entry) { return entry.stream == stream; });
}

void StreamWaits::check_free(std::uint32_t first, std::uint32_t count) {
  const auto found = awaited_by([&](const Entry& entry) { return *entry.slot - first < count; });
  if (!found) return;
  throw RouteUnavailable("a stream waits for notification slot " + std::to_string(*found) +
                         ": let that wait end first, or use another slot");
}

template <typename MakeWait>
std::shared_ptr<Transfer> StreamWaits::begin(Entry&& entry, const Stream& stream,
                                             MakeWait make_wait) {
  const auto waiter = entry.waiter;
  const StreamWaiter::Place taken = entry.place;
  auto transfer =
      std::make_shared<Transfer>(host_.poller, 0, route_of(*stream.device, entry.first != nullptr));
  entry.transfer = transfer;
  entry.stream = stream.handle;
  try {
    gpu::Wait wait = make_wait(entry);
    wait.nanoseconds = to_nanoseconds(stream.seconds);
    waiter->begin(taken, wait, stream.handle);
  } catch (...) {
    waiter->give_back(taken);
    leave_slot(entry, 0);
    host_.poller->wake();
    throw;
  }
  const bool is_first = !polled_.exchange(true);
  if (is_first) host_.poller->add(shared_from_this());
  {
    const std::lock_guard lock(mutex_);
    if (closed_) waiter->cancel(taken);
    arrivals_.push_back(std::move(entry));
  }
  if (pending_.fetch_add(1, std::memory_order_release) == 0 || is_first) host_.look();
  return transfer;
}

void StreamWaits::poll() noexcept {
  std::unique_lock lock(polling_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  take_arrivals(std::unique_lock(mutex_, std::try_to_lock));  // never blocks
  const auto now = Clock::now();
  if (entries_.empty() || now - looked_ < kBetweenLooks) return;
  looked_ = now;
  if (now - looked_after_ >= kBetweenCares) {
    looked_after_ = now;
    end_vain_ones();
  }
  lock.unlock();
  have_looked();
}

// On the driver thread, as this may block for as long as the GPU works: while a kernel is loaded,
// or memory is freed. The polling thread must keep sending heartbeats.
void StreamWaits::have_looked() noexcept {
  if (looking_.exchange(true)) return;
  struct Look {
    std::weak_ptr<StreamWaits> of;
    ~Look() {  // the work has run, or never will
      if (const auto waits = of.lock()) waits->looking_.store(false);
    }
  };
  try {
    const auto look = std::make_shared<const Look>(weak_from_this());
    Executor::Work work = [look] {
      if (const auto waits = look->of.lock()) waits->look_at_all();
    };
    if (!host_.drivers || !host_.drivers->run(work)) work();  // closed: run it here
  } catch (const std::bad_alloc&) {
    looking_.store(false);
  }
}

// One at a time.
void StreamWaits::look_at_all() noexcept try {
  std::vector<std::shared_ptr<StreamWaiter>> waiters;
  {
    const std::lock_guard lock(polling_);
    std::ranges::copy_if(watched_, std::back_inserter(waiters),
                         [this](const auto& waiter) { return has_entries_of(*waiter); });
  }
  for (const auto& waiter : waiters) {
    const driver::CudaResult now = waiter->refresh();
    if (now == driver::kCudaErrorNotReady) continue;
    const std::lock_guard lock(polling_);
    look(*waiter, now);
  }
} catch (const std::bad_alloc&) {
  return;  // the next poll finds what there is
}

bool StreamWaits::has_entries_of(const StreamWaiter& waiter) const noexcept {
  return std::ranges::any_of(entries_, [&](const Entry& e) { return e.waiter.get() == &waiter; });
}

void StreamWaits::take_arrivals(const std::unique_lock<Mutex<Rank::stream_waits>>& lock) {
  if (!lock.owns_lock()) return;
  for (const Entry& entry : arrivals_) {
    if (std::ranges::find(watched_, entry.waiter) == watched_.end()) {
      watched_.push_back(entry.waiter);
    }
  }
  entries_.splice(entries_.end(), arrivals_);
}

// Removes the entries for which is_over(Entry&) returns true; it has ended their transfers.
template <typename IsOver>
void StreamWaits::end_those(IsOver is_over) noexcept {
  for (auto place = entries_.begin(); place != entries_.end();) {
    if (!is_over(*place)) {
      ++place;
      continue;
    }
    place = entries_.erase(place);
    pending_.fetch_sub(1, std::memory_order_release);
    host_.poller->wake();
  }
}

// now: the result of refresh().
void StreamWaits::look(StreamWaiter& waiter, driver::CudaResult now) noexcept {
  end_those([&](Entry& entry) {
    if (entry.waiter.get() != &waiter) return false;
    const StreamWaiter::Result result = waiter.result(entry.place);
    if (now == driver::kCudaSuccess) {
      if (result.outcome == gpu::kWaiting) return false;
      end(entry, result);
    } else {  // unknown what the GPU still does: leak the place and what it uses
      waiter.leave_behind();
      for (auto& kept : entry.kept) gpu::keep_for_good(std::move(kept));
      leave_slot(entry, 0);
      fail(entry, gpu_failure(waiter.device()->cuda(), now));
    }
    return true;
  });
}

void StreamWaits::end_vain_ones() noexcept {
  const std::optional<std::string> alone = host_.alone();
  for (Entry& entry : entries_) {
    if (!entry.first && !entry.cancelled) entry.cancelled = alone;
    const bool failed = entry.first && entry.first->done() && entry.first->failed();
    if (entry.cancelled || failed) entry.waiter->cancel(entry.place);
  }
}

void StreamWaits::end(Entry& entry, const StreamWaiter::Result& result) noexcept {
  entry.waiter->give_back(entry.place);
  leave_slot(entry, result.tag);
  const Failure* failure = entry.first && entry.first->done() ? entry.first->failure() : nullptr;
  if (failure != nullptr && entry.holds) return entry.transfer->drop();
  if (failure != nullptr) {
    entry.first->note_heard();
    return fail(entry, *failure);
  }
  if (result.outcome == gpu::kCame) {
    if (!entry.first) entry.transfer->set_result(result.value);
    return entry.transfer->drop();
  }
  fail(entry, why_in_vain(entry, result));
}

Failure StreamWaits::why_in_vain(const Entry& entry,
                                 const StreamWaiter::Result& result) const noexcept try {
  const std::string goes_on = "; it continues without it, and so does the work behind it";
  const std::string stream = "a stream of " + entry.waiter->device()->facts().device_name() +
                             " waited for " + awaited(entry);
  if (result.outcome == gpu::kTimedOut) {
    return {
        .kind = Failure::Kind::timeout,
        .message =
            stream + ", which did not come in " + seconds_text(entry.seconds) + goes_on +
            ". If the program was blocked meanwhile: CUDA loads a kernel at its first launch, and "
            "waits for all streams to do so (set CUDA_MODULE_LOADING=EAGER, or launch it once "
            "before)"};
  }
  const bool alone = !closed_ && entry.cancelled;
  return {.kind = alone ? Failure::Kind::peer_lost : Failure::Kind::error,
          .message = stream + " in vain: " +
                     (alone ? *entry.cancelled : "the Endpoint was closed") + goes_on};
} catch (const std::bad_alloc&) {
  return {.message = "out of memory"};  // short enough to need no allocation
}

// Also reported: the program's stream continues without the data, and nobody may check the
// Transfer.
void StreamWaits::fail(Entry& entry, Failure failure) noexcept {
  if (!closed_) report(failure.message);
  entry.transfer->fail(std::move(failure));
  entry.transfer->drop();
}

void StreamWaits::end_all() noexcept {
  closed_ = true;
  const std::lock_guard polling(polling_);
  take_arrivals(std::unique_lock(mutex_));
  for (const Entry& entry : entries_) entry.waiter->cancel(entry.place);
}

StreamHold::StreamHold(std::shared_ptr<StreamWaits> waits, const StreamWaits::Stream& stream)
    : waits_(std::move(waits)),
      stream_(stream),
      waiter_(waits_->waiter_of(stream.device)),
      place_(waiter_->take()) {}

StreamHold::~StreamHold() {
  if (waiter_) waiter_->give_back(place_);
}

void StreamHold::until(const std::shared_ptr<Transfer>& transfer) {
  waits_->wait_for_transfer(
      {.waiter = std::move(waiter_), .place = place_, .first = transfer, .holds = true}, stream_);
}

}  // namespace zerohop::engine
