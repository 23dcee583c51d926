#include "engine/stream/captured_waits.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/report.hpp"
#include "base/seconds.hpp"
#include "gpu/capture.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/replay.hpp"

namespace zerohop::engine {

std::shared_ptr<gpu::ReplayWaits> CapturedWaits::waits_of(
    const std::shared_ptr<const gpu::Device>& device, const Deadline& deadline) {
  const auto known = lanes_.find(device->ordinal());
  if (known != lanes_.end()) return known->second.waits;
  Lane fresh{std::make_shared<gpu::ReplayWaits>(device, deadline)};
  return lanes_.emplace(device->ordinal(), std::move(fresh)).first->second.waits;
}

// All graphs take notifications of a slot one after the other.
std::shared_ptr<const SlotClaim> CapturedWaits::claim(const gpu::ReplayWaits& waits,
                                                      std::uint32_t slot,
                                                      const Deadline& deadline) {
  auto& known = claims_[slot];
  if (auto claimed = known.lock()) {
    if (claimed->device()->ordinal() == waits.device()->ordinal()) return claimed;
    throw RouteUnavailable("a CUDA graph on " + claimed->device()->facts().device_name() +
                           " waits for notification slot " + std::to_string(slot) +
                           ": use another slot on " + waits.device()->facts().device_name());
  }
  auto fresh = std::make_shared<const SlotClaim>(host_.board, waits.device(), slot, 1, deadline);
  const bool first = !claimed_before_.contains(slot) && fresh->none_taken();
  waits.words().set_count(slot, first ? gpu::kNoneTaken : gpu::kUnknownTaken, deadline);
  claimed_before_.insert(slot);
  known = fresh;
  return fresh;
}

void CapturedWaits::check_free(std::uint32_t slot) {
  const std::lock_guard lock(mutex_);
  raise_failure();
  const auto known = claims_.find(slot);
  if (known == claims_.end() || known->second.expired()) return;
  throw RouteUnavailable("a CUDA graph waits for notification slot " + std::to_string(slot) +
                         ": wait for another slot, or drop the graph first");
}

std::shared_ptr<Transfer> CapturedWaits::notification(const Stream& stream, std::uint32_t slot,
                                                      const Deadline& deadline) {
  const std::lock_guard lock(mutex_);
  raise_failure();
  const auto captured = std::make_shared<CapturedWait>(waits_of(stream.device, deadline));
  const auto claimed = claim(*captured->waits, slot, deadline);
  captured->awaited = "notification slot " + std::to_string(slot);
  captured->kept = claimed;
  const GpuBoard::Reached& board = claimed->reached();
  return add(captured,
             {.word = board.words + slot * sizeof(std::uint32_t),
              .note = board.notes + slot * sizeof(gpu::Note),
              .taken = captured->waits->words().count(slot),
              .closed = board.lonely,
              .awaited = gpu::Awaited::slot},
             stream);
}

std::shared_ptr<Transfer> CapturedWaits::transfer(const Stream& stream,
                                                  const std::shared_ptr<Transfer>& first,
                                                  const Deadline& deadline) {
  const std::lock_guard lock(mutex_);
  raise_failure();
  const auto captured = std::make_shared<CapturedWait>(waits_of(stream.device, deadline));
  captured->awaited = "a transfer of " + std::to_string(first->nbytes()) + " bytes";
  captured->first = first;
  // The CPU opens it. The GPU's own mark is used again, and would look as if it were to come.
  auto transfer = add(captured, {.awaited = gpu::Awaited::number}, stream);
  first->on_done([captured] {
    if (captured->first->failed()) {
      captured->waits->close(captured->place);
    } else {
      captured->waits->open(captured->place);
    }
  });
  return transfer;
}

std::shared_ptr<Transfer> CapturedWaits::add(const CapturedPtr& captured, gpu::ReplayedWait wait,
                                             const Stream& stream) {
  captured->seconds = stream.seconds;
  wait.nanoseconds = to_nanoseconds(stream.seconds);
  auto transfer = std::make_shared<Transfer>(
      host_.poller, 0,
      std::make_shared<const Route>(Route{.kind = "stream",
                                          .device = stream.device->facts().device_name(),
                                          .reason = "a CUDA graph waits for " + captured->awaited,
                                          .settings = {}}));
  std::erase_if(all_, [](const auto& each) { return each.expired(); });
  all_.push_back(captured);
  const gpu::DeviceGuard guard(*stream.device);
  gpu::keep_with_graph(stream.device, stream.handle, captured);  // whatever comes next
  captured->waits->add(captured->place, wait, stream.handle);
  transfer->end_as_captured(
      std::make_shared<const gpu::CapturePoint>(stream.device, stream.handle));
  if (!polled_.exchange(true)) host_.poller->add(shared_from_this());
  return transfer;
}

void CapturedWaits::raise_failure() {
  if (!failure_) return;
  const Failure failure = *std::exchange(failure_, std::nullopt);
  failure.raise();
}

bool CapturedWaits::pending() const noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && std::ranges::any_of(lanes_, [](const auto& each) {
           return each.second.waits->faults() != each.second.faults_seen;
         });
}

void CapturedWaits::poll() noexcept try {
  std::vector<CapturedPtr> seen;  // perhaps the last references: dropped without the lock
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (auto& [ordinal, lane] : lanes_) lane.faults_seen = lane.waits->faults();
  for (const auto& each : all_) {
    const CapturedPtr& captured = seen.emplace_back(each.lock());
    if (!captured) continue;
    const gpu::WaitFault fault = captured->waits->fault(captured->place);
    if (std::exchange(captured->faults_seen, fault.count) == fault.count || closed_) continue;
    failure_ = failure_of(*captured, fault);
    report(failure_->message);
  }
} catch (const std::bad_alloc&) {
  report("out of memory: a wait of a CUDA graph was in vain");
}

Failure CapturedWaits::failure_of(const CapturedWait& captured, const gpu::WaitFault& fault) const {
  const std::string waited = "a CUDA graph on " + captured.waits->device()->facts().device_name() +
                             " waited for " + captured.awaited;
  const std::string went_on = "; it went on without it, and so did the work behind it";
  if (fault.outcome == gpu::kTimedOut) {
    return {
        .kind = Failure::Kind::timeout,
        .message = waited + ", which did not come in " + seconds_text(captured.seconds) + went_on};
  }
  const Failure* const failed =
      captured.first && captured.first->done() ? captured.first->failure() : nullptr;
  const auto alone = failed == nullptr ? host_.alone() : std::nullopt;
  return {
      .kind = failed != nullptr ? failed->kind : Failure::Kind::peer_lost,
      .message = waited + " in vain: " +
                 (failed != nullptr ? failed->message : alone.value_or("no peer is connected")) +
                 went_on};
}

}  // namespace zerohop::engine
