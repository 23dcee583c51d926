// The ranks of a World as GPUs of one host that reach each other's memory: collectives that kernels
// carry out, in the program's streams, also as part of CUDA graphs. No CPU takes part once a kernel
// is enqueued.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/locks.hpp"
#include "engine/collective/group_part.hpp"
#include "engine/collective/group_plan.hpp"
#include "engine/memory/memory.hpp"
#include "engine/peer/peer.hpp"
#include "engine/wait/poller.hpp"
#include "engine/wait/transfer.hpp"
#include "gpu/apart.hpp"

namespace zerohop::engine::collective {

// Thread-safe once all have met, but all ranks must make the same calls in the same order.
class GpuGroup : public Poller::Source, public std::enable_shared_from_this<GpuGroup> {
 public:
  struct Host {
    std::shared_ptr<Poller> poller;
    std::function<void()> look;  // makes the progress thread poll
  };
  // arena: GPU memory of nbytes_for(size) bytes that the others may write; it is cleared. name: of
  // the World. Throws RouteUnavailable (built without kernels), CudaError, TransferTimeout.
  GpuGroup(Host host, const GroupPlace& place, Memory arena, std::string name,
           const Deadline& deadline);
  ~GpuGroup() override;
  GpuGroup(const GpuGroup&) = delete;
  GpuGroup& operator=(const GpuGroup&) = delete;

  static std::uint64_t nbytes_for(std::uint32_t size) { return gpu::GroupArena{size}.nbytes(); }

  // The arena of another rank. Throws RouteUnavailable (kernels cannot reach it), CudaError,
  // PeerLost.
  void meet(std::uint32_t rank, const std::shared_ptr<Peer>& peer, const RemoteMemory& arena,
            double timeout);

  // Enqueues one call of this rank in a stream; without one, in one of its own, behind the default
  // stream. Null: it has become part of a graph. seconds: how long its kernel waits for the other
  // ranks at most. part: where its arrays may lie; null: elsewhere. Throws what ended the group,
  // CudaError, RouteUnavailable (the stream), and invalid_argument.
  std::shared_ptr<Transfer> call(const GroupArrays& arrays,
                                 std::optional<driver::CudaStream> stream, double seconds,
                                 const GroupPart* part = nullptr);

  const gpu::Device& device() const noexcept { return *group_->device(); }
  // Ends all kernels that wait.
  void end(const std::string& reason) noexcept;

  bool pending() const noexcept override { return pending_.load(std::memory_order_acquire) > 0; }
  void poll() noexcept override;

 private:
  struct Entry {
    std::uint32_t number;
    std::uint64_t code;
    double seconds;
    std::shared_ptr<Transfer> transfer;
    std::shared_ptr<const gpu::KernelsWait> waits;
    std::shared_ptr<const void> hold;  // of a call in place
  };
  struct Member {
    std::shared_ptr<Peer> peer;
    std::vector<std::shared_ptr<const void>> kept;  // its arena, mapped; guarded by mutex_
    Done::Id loss = 0;
  };
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  void on_lost(std::uint32_t rank) noexcept;
  void note_captured(const std::shared_ptr<GroupPart::Hold>& hold);
  using Kept = std::vector<std::shared_ptr<const void>>;
  Kept take_members() noexcept;
  void let_go() noexcept;
  void check() const;
  std::string loss() const;
  Failure failure_of(const std::string& call, double seconds) const noexcept;
  void finish(Entry& entry, bool well) noexcept;

  const unsigned generation_;  // of the process (fork)
  const Host host_;
  const GroupPlace place_;
  const std::string name_;
  const Memory arena_;
  const std::shared_ptr<const Registration> registration_;  // of the arena
  std::shared_ptr<gpu::Group> group_;
  std::shared_ptr<const Route> route_;
  gpu::GroupCall addresses_;                       // of the arenas
  std::unique_ptr<const gpu::KernelsWait> waits_;  // while ranks of this process are members
  std::vector<Member> members_;                    // by rank
  std::atomic<std::uint32_t> pending_{0};
  std::atomic<bool> polled_{false};
  std::atomic<std::uint32_t> lost_{kNone};                 // the first rank that was lost
  mutable Mutex<zerohop::Rank::gpu_group_entries> mutex_;  // guards the following
  std::deque<Entry> entries_;                              // in the order of their kernels
  std::vector<std::weak_ptr<GroupPart::Hold>> captured_;   // of the calls in graphs
  std::size_t next_sweep_ = 64;                            // its size when dead ones are removed
  std::string why_ended_;                                  // by end()
};

}  // namespace zerohop::engine::collective
