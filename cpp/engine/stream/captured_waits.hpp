// Waits that are parts of CUDA graphs: for notifications, and for transfers. With each replay a
// wait for a slot takes the next notification. Every wait ends, by its own bound on the GPU, or
// because nothing will come any more; the next poll reports one that was in vain.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/locks.hpp"
#include "engine/stream/slot_claim.hpp"
#include "engine/stream/stream_waits.hpp"
#include "gpu/apart.hpp"
#include "gpu/replay_waits.hpp"

namespace zerohop::engine {

class CapturedWaits : public Poller::Source, public std::enable_shared_from_this<CapturedWaits> {
 public:
  explicit CapturedWaits(StreamWaits::Host host) : host_(std::move(host)) {}

  // Each adds a wait to the graph into which the stream is being captured, and returns a Transfer
  // that says so. Throws RouteUnavailable, CudaError, TransferTimeout, Error (too many); once, what
  // a replay failed with before.
  using Stream = StreamWaits::Stream;
  std::shared_ptr<Transfer> notification(const Stream& stream, std::uint32_t slot,
                                         const Deadline& deadline);
  std::shared_ptr<Transfer> transfer(const Stream& stream, const std::shared_ptr<Transfer>& first,
                                     const Deadline& deadline);
  // Throws RouteUnavailable if a graph waits for that slot, and also what the others throw once.
  void check_free(std::uint32_t slot);

  bool pending() const noexcept override;  // some wait was in vain
  void poll() noexcept override;
  void close() noexcept { closed_ = true; }  // from now on nothing is reported

 private:
  // What a graph keeps.
  struct CapturedWait {
    explicit CapturedWait(std::shared_ptr<gpu::ReplayWaits> of)
        : waits(std::move(of)), place(waits->take()), faults_seen(waits->fault(place).count) {}
    ~CapturedWait() {  // of the claim on another thread: it waits for the GPU
      waits->give_back(place);
      if (!kept) return;
      gpu::run_apart(waits->device()->ordinal(),
                     [last = std::move(kept)]() mutable { last.reset(); });
    }
    CapturedWait(const CapturedWait&) = delete;
    CapturedWait& operator=(const CapturedWait&) = delete;

    const gpu::KernelsWait kernels_wait{};  // at any time, for what threads of this process do
    const std::shared_ptr<gpu::ReplayWaits> waits;
    const gpu::ReplayWaits::Place place;
    std::uint32_t faults_seen;
    std::string awaited{};
    std::shared_ptr<Transfer> first{};  // the awaited transfer; null: a notification
    double seconds = 0;
    std::shared_ptr<const void> kept{};
  };
  using CapturedPtr = std::shared_ptr<CapturedWait>;

  // One GPU.
  struct Lane {
    std::shared_ptr<gpu::ReplayWaits> waits;
    std::uint32_t faults_seen = 0;
  };

  // All of these require the lock.
  std::shared_ptr<gpu::ReplayWaits> waits_of(const std::shared_ptr<const gpu::Device>& device,
                                             const Deadline& deadline);
  std::shared_ptr<const SlotClaim> claim(const gpu::ReplayWaits& waits, std::uint32_t slot,
                                         const Deadline& deadline);
  std::shared_ptr<Transfer> add(const CapturedPtr& captured, gpu::ReplayedWait wait,
                                const Stream& stream);
  void raise_failure();
  Failure failure_of(const CapturedWait& captured, const gpu::WaitFault& fault) const;

  const StreamWaits::Host host_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> polled_{false};
  mutable Mutex<Rank::captured_waits> mutex_;  // held while a wait is captured; guards all below
  std::map<int, Lane> lanes_;                  // by ordinal
  std::list<std::weak_ptr<CapturedWait>> all_;
  std::map<std::uint32_t, std::weak_ptr<const SlotClaim>> claims_;
  std::set<std::uint32_t> claimed_before_;
  std::optional<Failure> failure_;  // the latest, until a call throws it
};

}  // namespace zerohop::engine
