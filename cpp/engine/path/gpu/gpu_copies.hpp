// Copies that GPUs of this process make for one Peer (the p2p route between arrays on GPUs), and
// what is to be done when they are placed. They end in the order in which they were begun, whatever
// GPU makes them: so do notifications. But those in streams of the program keep the order of their
// stream alone.
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
#include "engine/path/local/earlier_copies.hpp"
#include "engine/wait/poller.hpp"
#include "engine/wait/transfer.hpp"
#include "gpu/copy_stream.hpp"

namespace zerohop::engine {

class GpuCopies : public Poller::Source,
                  public EarlierCopies,
                  public std::enable_shared_from_this<GpuCopies> {
 public:
  // Until nothing touches it any more.
  struct Kept {
    ShortList<GpuReach::Held, 2> mappings;  // of the peer
    ShortList<std::shared_ptr<const void>, 3> others;
  };
  struct Work {
    std::shared_ptr<Transfer> transfer;  // null once it has ended otherwise
    bool notifies = false;               // `finish` does: the CPU, not the GPU
    std::function<void()> finish;        // once placed: ends the transfer, which otherwise ends by
                                         // itself; neither throws nor waits
    Kept kept;
  };
  // What the GPU does, and when.
  struct Copy {
    std::shared_ptr<const gpu::Device> device;
    std::span<const gpu::CopyPiece> ranges;
    gpu::PieceSource* pieces = nullptr;  // instead: a list, of `nbytes` together
    std::uint64_t nbytes = 0;
    std::optional<driver::CudaStream> stream;  // of the program; none: behind its default stream
    gpu::CopyStream::Put put;                  // by the GPU
  };

  // look: has the progress thread poll, as no event will wake it.
  GpuCopies(std::shared_ptr<Poller> poller, std::function<void()> look);
  ~GpuCopies() override;  // what may still run leaves behind what it uses
  GpuCopies(const GpuCopies&) = delete;
  GpuCopies& operator=(const GpuCopies&) = delete;

  // Gives the copies to the GPU; waits for room, where many are under way. Throws RouteUnavailable
  // (see gpu::check_stream); CudaError, TransferTimeout: some may have been begun, and what `work`
  // keeps is kept until they have ended.
  void begin(const Copy& copy, Work work, const Deadline& deadline);
  // Nothing to copy: it is finished behind everything that was begun before.
  void follow(Work work, const Deadline& deadline);
  void follow(std::shared_ptr<Transfer> transfer, std::function<void()> finish,
              const Deadline& deadline) override {
    follow({.transfer = std::move(transfer),
            .notifies = true,
            .finish = std::move(finish),
            .kept = {}},
           deadline);
  }

  bool pending() const noexcept override { return pending_.load() > 0; }
  // Whether a notification of an earlier call is left to the CPU: a GPU must not overtake it.
  bool notifies() const noexcept { return notifies_.load(std::memory_order_acquire) > 0; }
  void poll() noexcept override;

  // The Peer is lost: what the GPU does not end in a moment fails with that. It stays kept.
  void cut_off(Failure failure) noexcept override;

 private:
  using Clock = std::chrono::steady_clock;
  // One GPU.
  struct Lane {
    explicit Lane(std::shared_ptr<const gpu::Device> device) : stream(std::move(device)) {}
    gpu::CopyStream stream;
    std::atomic<int> in_order{0};  // entries, of its own stream
    Clock::time_point asked{};     // the driver, by who polls
  };
  enum class State { beginning, begun, broken };  // broken: only part of it was put in
  struct Entry {
    Entry(std::shared_ptr<Lane> of, bool in_order_of_all, Work&& what)
        : lane(std::move(of)), in_order(in_order_of_all), work(std::move(what)) {}
    std::shared_ptr<Lane> lane;                   // null: nothing to copy
    bool in_order = true;                         // among all; else in a stream of the program
    gpu::Ticket ticket;                           // once begun
    std::atomic<State> state = State::beginning;  // what is above is there once it says so
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
  // By who polls:
  void take_arrivals() noexcept;
  driver::CudaResult ask(const Entry& entry, Clock::time_point now) noexcept;
  Place end(Place place, driver::CudaResult result) noexcept;
  void fail_cut_off() noexcept;

  const std::shared_ptr<Poller> poller_;
  const std::function<void()> look_;
  std::atomic<bool> polled_{false};  // the Poller knows of it
  const unsigned generation_;        // of the process (fork)
  std::atomic<int> pending_{0};
  std::atomic<int> notifies_{0};
  std::optional<Failure> cut_off_;     // set once, before the next but one
  Clock::time_point patience_ends_{};  // of what is cut off
  std::atomic<bool> is_cut_off_{false};

  Mutex<Rank::gpu_copies_submission>
      submission_;  // held to put work into streams, which may take long; guards the next
  std::map<int, std::shared_ptr<Lane>> lanes_;  // by ordinal
  Mutex<Rank::gpu_copies> mutex_;               // held shortly; guards the next
  Entries arrivals_;                            // in the order of the calls
  std::atomic<bool> arrived_{false};            // there are some: who polls takes no lock for none
  Mutex<Rank::gpu_copies_polling> polling_;     // held by who polls; guards the next
  Entries entries_;                             // before the arrivals
};

}  // namespace zerohop::engine
