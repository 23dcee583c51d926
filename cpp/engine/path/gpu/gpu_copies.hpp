// Copies that GPUs of this process make for one Peer (the p2p route between arrays on GPUs), and
// the work to do once they are placed. They end in the order in which they began, whichever GPU
// makes them, and so do notifications. Copies in streams of the program keep only the order of
// their stream.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/locks.hpp"
#include "base/short_list.hpp"
#include "engine/path/gpu/gpu_reach.hpp"
#include "engine/path/pending_work.hpp"
#include "engine/wait/poller.hpp"
#include "engine/wait/transfer.hpp"
#include "gpu/copy_stream.hpp"

namespace zerohop::engine {

class GpuCopies : public Poller::Source, public std::enable_shared_from_this<GpuCopies> {
 public:
  // Kept until no copy uses it any more.
  struct Kept {
    ShortList<GpuReach::Held, 2> mappings;  // of the peer
    ShortList<std::shared_ptr<const void>, 3> others;
  };
  struct Work {
    std::shared_ptr<Transfer> transfer;  // null if it has already ended
    bool notifies = false;               // `finish` does: by the CPU, not the GPU
    std::function<void()> finish;  // runs once placed and ends the transfer; must not throw or wait
    Kept kept;
  };
  // The GPU's task, and its position in the stream order.
  struct Copy {
    std::shared_ptr<const gpu::Device> device;
    std::span<const gpu::CopyPiece> ranges;
    gpu::PieceSource* pieces = nullptr;  // instead: a list, `nbytes` in total
    std::uint64_t nbytes = 0;
    std::optional<driver::CudaStream> stream;  // of the program; none: after its default stream
    gpu::CopyStream::Put put;                  // by the GPU
  };

  // look: makes the progress thread poll, as no event will wake it. pending: counts the copies.
  GpuCopies(std::shared_ptr<Poller> poller, std::function<void()> look,
            std::shared_ptr<PendingWork> pending);
  ~GpuCopies() override;  // leaks what running copies may still use
  GpuCopies(const GpuCopies&) = delete;
  GpuCopies& operator=(const GpuCopies&) = delete;

  // Gives the copies to the GPU; waits for room if many are under way. Throws RouteUnavailable (see
  // gpu::check_stream); CudaError, TransferTimeout: some copies may have begun, and the kept
  // objects of `work` stay until they have ended.
  void begin(const Copy& copy, Work work, const Deadline& deadline);
  // Without data to copy: finishes after everything that began before.
  void follow(Work work, const Deadline& deadline);

  bool pending() const noexcept override { return pending_->gpu_copies > 0; }
  // Whether the CPU still has to put a notification of an earlier call: a GPU must not overtake it.
  bool notifies() const noexcept { return notifies_.load(std::memory_order_acquire) > 0; }
  void poll() noexcept override;

  // The Peer is lost: copies that do not end within a second fail with `failure`. Their memory
  // stays kept.
  void cut_off(Failure failure) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  // One GPU.
  struct Lane {
    explicit Lane(std::shared_ptr<const gpu::Device> device) : stream(std::move(device)) {}
    gpu::CopyStream stream;
    std::atomic<int> in_order{0};  // entries in its own stream
    Clock::time_point asked{};     // last query of the driver, by the polling thread
  };
  enum class State { beginning, begun, broken };  // broken: only partly submitted
  struct Entry {
    Entry(std::shared_ptr<Lane> of, bool in_order_of_all, Work&& what)
        : lane(std::move(of)), in_order(in_order_of_all), work(std::move(what)) {}
    std::shared_ptr<Lane> lane;                   // null: no data to copy
    bool in_order = true;                         // among all; false: in a stream of the program
    gpu::Ticket ticket;                           // once begun
    std::atomic<State> state = State::beginning;  // publishes the fields above
    Work work;
  };
  using Entries = std::list<Entry>;
  using Place = Entries::iterator;

  std::shared_ptr<Lane> lane_of(const std::shared_ptr<const gpu::Device>& device);
  void wait_for_room(const Deadline& deadline);
  Place put(std::list<Entry>&& entry);
  gpu::Ticket give(Lane& lane, const Copy& copy, const Deadline& deadline);
  void order_behind_lanes(const Copy& copy);
  [[noreturn]] void throw_cut_off() const;
  bool is_cut_off() const noexcept { return is_cut_off_.load(std::memory_order_acquire); }
  void break_off(Place place, const Copy& copy) noexcept;
  // For the polling thread:
  void take_arrivals() noexcept;
  driver::CudaResult ask(const Entry& entry, Clock::time_point now) noexcept;
  Place end(Place place, driver::CudaResult result) noexcept;
  void fail_cut_off() noexcept;

  const std::shared_ptr<Poller> poller_;
  const std::function<void()> look_;
  const std::shared_ptr<PendingWork> pending_;
  std::atomic<bool> polled_{false};  // added to the Poller
  const unsigned generation_;        // of the process (fork)
  std::atomic<int> notifies_{0};
  std::optional<Failure> cut_off_;     // set once, before is_cut_off_
  Clock::time_point patience_ends_{};  // for copies that are cut off
  std::atomic<bool> is_cut_off_{false};

  Mutex<Rank::gpu_copies_submission>
      submission_;  // held while work is put into streams, which may take long; guards the next
  std::map<int, std::shared_ptr<Lane>> lanes_;  // by ordinal
  Mutex<Rank::gpu_copies> mutex_;               // held briefly; guards the next
  Entries arrivals_;                            // in the order of the calls
  std::atomic<bool> arrived_{false};  // arrivals_ is not empty: saves polling threads the lock
  Mutex<Rank::gpu_copies_polling> polling_;  // held by the polling thread; guards the next
  Entries entries_;                          // older than the arrivals
};

}  // namespace zerohop::engine
