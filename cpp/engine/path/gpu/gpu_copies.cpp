#include "engine/path/gpu/gpu_copies.hpp"

#include <iterator>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/user_stream.hpp"

namespace zerohop::engine {
namespace {

// A failed GPU writes no word, so the driver is queried at this interval.
constexpr std::chrono::milliseconds kBetweenQueries{1};
// Loss of a peer is reported within five seconds; detecting its silence may take four.
constexpr std::chrono::seconds kWhenCutOff{1};
// Copies under way at once: a stream holds about a thousand operations; beyond that the driver
// blocks its caller indefinitely.
constexpr int kMost = 300;
// With this many under way, another one counts as one of many.
constexpr int kMany = 4;

Failure copy_failure(const driver::Cuda& cuda, driver::CudaResult error) {
  try {
    driver::check_cuda(cuda, error, "the GPU's copy to or from the peer's memory");
  } catch (const CudaError&) {
    return Failure::of_current_exception().with_effect(Effect::some);
  }
  return {};
}

[[noreturn]] void throw_no_room() {
  throw TransferTimeout(
      "the GPU did not make earlier copies in time, so nothing was transferred: give a longer "
      "timeout");
}

struct Waker {
  Poller& poller;
  ~Waker() { poller.wake(); }
};

}  // namespace

GpuCopies::GpuCopies(std::shared_ptr<Poller> poller, std::function<void()> look,
                     std::shared_ptr<PendingWork> pending)
    : poller_(std::move(poller)),
      look_(std::move(look)),
      pending_(std::move(pending)),
      generation_(fork_generation()) {}

GpuCopies::~GpuCopies() {
  const bool own = generation_ == fork_generation();
  entries_.splice(entries_.end(), arrivals_);
  for (Entry& entry : entries_) {
    if (!entry.lane) continue;
    if (own && entry.state == State::begun && entry.lane->stream.done(entry.ticket)) {
      entry.lane->stream.give_back(entry.ticket);
      continue;
    }
    if (own && entry.in_order && entry.lane->stream.query() == driver::kCudaSuccess) continue;
    if (!entry.in_order) entry.lane->stream.leave_behind();
    new auto(std::move(entry.work.kept));  // leaked after fork(), or if a copy hangs
  }
}

std::shared_ptr<GpuCopies::Lane> GpuCopies::lane_of(
    const std::shared_ptr<const gpu::Device>& device) {
  const auto known = lanes_.find(device->ordinal());
  if (known != lanes_.end()) return known->second;
  // Made before it has an entry: the GPU may refuse a stream.
  auto lane = std::make_shared<Lane>(device);
  return lanes_.emplace(device->ordinal(), std::move(lane)).first->second;
}

void GpuCopies::wait_for_room(const Deadline& deadline) {
  const auto room = [this] {
    return pending_->gpu_copies.load(std::memory_order_relaxed) < kMost || is_cut_off();
  };
  if (!room() && !poller_->wait(room, deadline)) throw_no_room();
  if (is_cut_off()) throw_cut_off();
}

void GpuCopies::throw_cut_off() const {
  Failure failure = *cut_off_;
  failure.set_effect(Effect::nothing);
  failure.raise();
}

GpuCopies::Place GpuCopies::put(std::list<Entry>&& entry) {
  const bool is_first = !polled_.exchange(true);
  if (is_first) poller_->add(shared_from_this());
  const Place place = entry.begin();
  if (place->work.notifies) notifies_.fetch_add(1, std::memory_order_release);
  if (place->lane && place->in_order) place->lane->in_order.fetch_add(1);
  const bool is_plain = !place->work.finish;  // read first: after the splice it may be gone
  {
    const std::lock_guard lock(mutex_);
    arrivals_.splice(arrivals_.end(), entry);
    arrived_.store(true, std::memory_order_release);
  }
  const int others = pending_->gpu_copies.fetch_add(1);  // before asking looks()
  const bool looks = is_plain ? poller_->looks_soon() : poller_->looks();
  if ((others == 0 || is_first) && !looks) look_();
  if (others >= kMany && is_plain) poller_->note_begun();
  return place;
}

void GpuCopies::begin(const Copy& copy, Work work, const Deadline& deadline) {
  wait_for_room(deadline);
  // Not try_lock_until(), which ThreadSanitizer does not support.
  bool locked = false;
  const auto turn = [&] { return (locked = submission_.try_lock()) || is_cut_off(); };
  if (!poller_->wait(turn, deadline)) throw_no_room();
  if (!locked) throw_cut_off();
  const Waker wake{*poller_};  // runs after the unlock
  const std::lock_guard submission(submission_, std::adopt_lock);
  if (is_cut_off()) throw_cut_off();
  const std::shared_ptr<Lane> lane = lane_of(copy.device);
  const gpu::DeviceGuard guard(*copy.device);
  if (copy.stream) gpu::check_stream(*copy.device, *copy.stream);
  const std::shared_ptr<Transfer> transfer = work.transfer;
  Entries entry;
  entry.emplace_back(lane, !copy.stream, std::move(work));
  const Place place = put(std::move(entry));
  transfer->note_begun();  // given to the GPU, which may do other work first
  try {
    place->ticket = give(*lane, copy, deadline);
  } catch (...) {
    break_off(place, copy);
    throw;
  }
  transfer->set_mark(
      {.word = lane->stream.word(place->ticket), .number = place->ticket.number, .owner = lane});
  place->state.store(State::begun, std::memory_order_release);  // from here on it may be gone
}

gpu::Ticket GpuCopies::give(Lane& lane, const Copy& copy, const Deadline& deadline) {
  gpu::CopyStream& stream = lane.stream;
  if (copy.stream) {
    order_behind_lanes(copy);
  } else {
    stream.follow(driver::kCudaLegacyStream);
  }
  return stream.copy({copy.ranges, copy.pieces, copy.nbytes}, copy.put,
                     copy.stream.value_or(stream.own()), deadline);
}

// A notification follows the data of all earlier calls, except those in other streams.
void GpuCopies::order_behind_lanes(const Copy& copy) {
  for (const auto& [ordinal, lane] : lanes_) {
    if (lane->in_order.load() > 0) lane->stream.precede(*copy.stream);
  }
}

// Work put into a stream of the program has ended once the lane's own stream, ordered behind it,
// has.
void GpuCopies::break_off(Place place, const Copy& copy) noexcept {
  const std::lock_guard polling(polling_);
  if (copy.stream) {
    try {
      place->lane->stream.follow(*copy.stream);
    } catch (const CudaError&) {
      place->lane->stream.leave_behind();
      new auto(std::move(place->work.kept));  // when it ends is unknowable
    }
  }
  place->work.transfer = nullptr;  // the exception reports it
  place->work.finish = nullptr;
  place->state.store(State::broken, std::memory_order_release);
}

void GpuCopies::follow(Work work, const Deadline& deadline) {
  wait_for_room(deadline);
  Entries entry;
  entry.emplace_back(nullptr, true, std::move(work));
  entry.front().state = State::begun;
  put(std::move(entry));
}

// Polling must not take this lock repeatedly: a caller that posts would wait for it.
void GpuCopies::take_arrivals() noexcept {
  if (!arrived_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  entries_.splice(entries_.end(), arrivals_);
  arrived_.store(false, std::memory_order_relaxed);
}

void GpuCopies::poll() noexcept {
  const std::unique_lock lock(polling_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  take_arrivals();
  const auto now = Clock::now();
  bool all_before_ended = true;
  for (Place place = entries_.begin(); place != entries_.end();) {
    const Entry& entry = *place;
    driver::CudaResult result = driver::kCudaErrorNotReady;
    const bool has_turn = all_before_ended || !(entry.in_order || entry.work.notifies);
    if (has_turn && entry.state.load(std::memory_order_acquire) != State::beginning) {
      result = ask(entry, now);
    }
    if (result == driver::kCudaErrorNotReady) {
      all_before_ended = false;
      ++place;
    } else {
      place = end(place, result);
    }
  }
  if (is_cut_off() && now > patience_ends_) fail_cut_off();
}

driver::CudaResult GpuCopies::ask(const Entry& entry, Clock::time_point now) noexcept {
  if (!entry.lane) return driver::kCudaSuccess;
  Lane& lane = *entry.lane;
  if (entry.state == State::begun && lane.stream.done(entry.ticket)) return driver::kCudaSuccess;
  if (now - lane.asked < kBetweenQueries) return driver::kCudaErrorNotReady;
  driver::CudaResult result = lane.stream.query();
  // The end of the lane's own stream says nothing about the program's stream.
  const bool elsewhere = !entry.in_order && entry.state == State::begun;
  if (elsewhere && result == driver::kCudaSuccess) result = driver::kCudaErrorNotReady;
  if (result == driver::kCudaErrorNotReady) lane.asked = now;
  return result;
}

GpuCopies::Place GpuCopies::end(Place place, driver::CudaResult result) noexcept {
  Entries over;
  const Place next = std::next(place);
  over.splice(over.begin(), entries_, place);
  Entry& entry = over.front();
  if (entry.lane && entry.in_order) entry.lane->in_order.fetch_sub(1);
  if (entry.lane && entry.state == State::begun) entry.lane->stream.give_back(entry.ticket);
  entry.work.kept = {};  // before others see that it is done
  if (entry.work.transfer && result != driver::kCudaSuccess) {
    entry.work.transfer->fail(copy_failure(entry.lane->stream.device().cuda(), result));
    entry.work.transfer->drop();
  } else if (entry.work.finish) {
    entry.work.finish();
  } else if (entry.work.transfer) {
    entry.work.transfer->drop();
  }
  if (entry.work.notifies) notifies_.fetch_sub(1, std::memory_order_release);
  over.clear();  // before others see that none is pending
  pending_->gpu_copies.fetch_sub(1, std::memory_order_release);
  poller_->wake();
  return next;
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
  {
    const std::lock_guard lock(mutex_);
    if (is_cut_off()) return;
    cut_off_ = std::move(failure);
    patience_ends_ = Clock::now() + kWhenCutOff;
    is_cut_off_.store(true, std::memory_order_release);
  }
  poller_->wake();
}

}  // namespace zerohop::engine
