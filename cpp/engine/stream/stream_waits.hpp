// Waits of program streams: for notifications, and for transfers. Every wait ends, by its own bound
// on the GPU, or because the CPU cancels it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.hpp"
#include "base/locks.hpp"
#include "engine/stream/gpu_board.hpp"
#include "engine/wait/poller.hpp"
#include "engine/wait/transfer.hpp"
#include "gpu/stream_waiter.hpp"

namespace zerohop::engine {

class StreamWaits : public Poller::Source, public std::enable_shared_from_this<StreamWaits> {
 public:
  struct Host {
    std::shared_ptr<Poller> poller;
    std::shared_ptr<GpuBoard> board;
    std::shared_ptr<Executor> drivers;                  // null: the polling thread calls the driver
    std::function<void()> look;                         // makes the progress thread poll
    std::function<std::optional<std::string>()> alone;  // why no notification will arrive any more
  };
  explicit StreamWaits(Host host);
  ~StreamWaits() override;  // leaks unfinished waits
  StreamWaits(const StreamWaits&) = delete;
  StreamWaits& operator=(const StreamWaits&) = delete;

  struct Stream {
    std::shared_ptr<const gpu::Device> device = nullptr;
    driver::CudaStream handle = nullptr;
    double seconds = 0;  // bound of the wait, from when the stream reaches it
  };
  // Each enqueues a wait, and returns a Transfer that ends with it: done when the stream continues,
  // failed when what it waited for has not arrived. Throws RouteUnavailable, CudaError.
  std::shared_ptr<Transfer> notification(const Stream& stream, std::uint32_t slot, bool reset);
  std::shared_ptr<Transfer> transfer(const Stream& stream, const std::shared_ptr<Transfer>& first);
  // The slot of a notification that the stream waits for. The CPU sees an arrival slightly later,
  // so this waits a moment.
  std::optional<std::uint32_t> awaited(driver::CudaStream stream);
  // Throws RouteUnavailable if a stream waits for one of these slots; polls likewise.
  void check_free(std::uint32_t first, std::uint32_t count);

  bool pending() const noexcept override { return pending_.load(std::memory_order_acquire) > 0; }
  void poll() noexcept override;

  // The Endpoint is closed: ends all waits now.
  void end_all() noexcept;

 private:
  friend class StreamHold;
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::shared_ptr<gpu::StreamWaiter> waiter;
    gpu::StreamWaiter::Place place = 0;
    std::shared_ptr<Transfer> transfer = nullptr;
    std::shared_ptr<Transfer> first = nullptr;  // the awaited transfer; null: a notification
    double seconds = 0;
    driver::CudaStream stream = nullptr;
    bool holds = false;                                  // the stream, for the caller of `first`
    std::optional<std::uint32_t> slot = {};              // whose notes belong to it
    bool resets = false;                                 // clears the slot
    std::vector<std::shared_ptr<const void>> kept = {};  // until the wait has ended
    std::optional<std::string> cancelled = {};           // why it was cancelled
  };

  std::shared_ptr<gpu::StreamWaiter> waiter_of(const std::shared_ptr<const gpu::Device>& device);
  const std::shared_ptr<const Route>& route_of(const gpu::Device& device, bool of_transfer);
  gpu::Wait wait_for_slot(Entry& entry, const Stream& stream, std::uint32_t slot, bool reset);
  void leave_slot(const Entry& entry, std::uint32_t tag) noexcept;
  template <typename IsMeant>
  std::optional<std::uint32_t> awaited_by(IsMeant is_meant);
  static std::string awaited(const Entry& entry);
  // make_wait(Entry&) -> gpu::Wait, without its bound.
  std::shared_ptr<Transfer> wait_for_transfer(Entry&& entry, const Stream& stream);
  template <typename MakeWait>
  std::shared_ptr<Transfer> begin(Entry&& entry, const Stream& stream, MakeWait make_wait);
  // For the polling thread:
  void take_arrivals(const std::unique_lock<Mutex<Rank::stream_waits>>& lock);
  bool has_entries_of(const gpu::StreamWaiter& waiter) const noexcept;
  void have_looked() noexcept;
  void look_at_all() noexcept;
  void look(gpu::StreamWaiter& waiter, driver::CudaResult now) noexcept;
  template <typename IsOver>
  void end_those(IsOver is_over) noexcept;
  void end_vain_ones() noexcept;
  void end(Entry& entry, const gpu::StreamWaiter::Result& result) noexcept;
  Failure why_in_vain(const Entry& entry, const gpu::StreamWaiter::Result& result) const noexcept;
  void fail(Entry& entry, Failure failure) noexcept;

  const Host host_;
  const unsigned generation_;  // of the process (fork)
  std::atomic<bool> polled_{false};
  std::atomic<bool> closed_{false};
  std::atomic<int> pending_{0};
  std::atomic<bool> looking_{false};  // a thread is polling, or is about to

  Mutex<Rank::stream_waits>
      mutex_;  // held briefly, except for the first wait on a GPU; guards the next
  std::map<int, std::shared_ptr<gpu::StreamWaiter>> waiters_;            // by ordinal
  std::map<std::pair<int, bool>, std::shared_ptr<const Route>> routes_;  // by ordinal, of_transfer
  std::list<Entry> arrivals_;

  Mutex<Rank::stream_waits_polling> polling_;  // held while polling; guards the next
  std::list<Entry> entries_;
  std::vector<std::shared_ptr<gpu::StreamWaiter>> watched_;  // of all entries ever
  Clock::time_point looked_{};
  Clock::time_point looked_after_{};
};

// Holds a stream until a transfer, started afterwards, is done. The place for the wait is reserved
// first: a refusal then comes before anything moves.
class StreamHold {
 public:
  // Throws RouteUnavailable, CudaError, Error (too many streams wait).
  StreamHold(std::shared_ptr<StreamWaits> waits, const StreamWaits::Stream& stream);
  ~StreamHold();
  StreamHold(const StreamHold&) = delete;
  StreamHold& operator=(const StreamHold&) = delete;

  // Enqueues the wait. The transfer's failure is reported to its own caller. Throws CudaError. Call
  // once.
  void until(const std::shared_ptr<Transfer>& transfer);

 private:
  const std::shared_ptr<StreamWaits> waits_;
  const StreamWaits::Stream stream_;
  std::shared_ptr<gpu::StreamWaiter> waiter_;  // null: begun
  const gpu::StreamWaiter::Place place_;
};

}  // namespace zerohop::engine
