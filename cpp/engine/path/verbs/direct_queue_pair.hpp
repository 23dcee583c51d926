// A queue pair that kernels of this process drive by themselves (GPU-initiated RDMA): its rings lie
// in memory that can be mapped into a GPU, and nothing is posted to it through verbs.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "driver/mlx5dv.hpp"
#include "engine/notify/board.hpp"
#include "engine/rail.hpp"
#include "rdma/memory_region.hpp"
#include "rdma/queue_pair.hpp"
#include "softhca/ring_memory.hpp"

namespace zerohop::engine {

class DirectQueuePair {
 public:
  static constexpr std::uint32_t kEntries = 512;  // waiting or outstanding, at least

  // Throws RouteUnavailable if the rail's device has no such rings, VerbsError.
  DirectQueuePair(const Rail& rail, const rdma::QueuePairOptions& options);

  rdma::QueuePairAddress address() const { return queue_pair_->address(); }
  std::uint32_t number() const noexcept { return queue_pair_->number(); }
  void connect(const rdma::QueuePairAddress& target) { queue_pair_->connect(target); }

  const mlx5dv_qp& sends() const noexcept { return sends_; }
  const mlx5dv_cq& completions() const noexcept { return completions_; }
  // Destination of the old values of atomics, one per block of the ring, and of a byte behind them.
  const softhca::RingMemory& results() const noexcept { return results_; }
  std::uint32_t results_key() const noexcept { return results_region_->lkey(); }
  bool software() const noexcept { return software_; }
  // Whether the adapter may write to a GPU beside its usual path (Data Direct).
  bool has_second_path() const noexcept { return has_second_path_; }
  // Why it is in the error state; empty: it is not.
  std::string failure() const;

 private:
  const bool software_;
  std::shared_ptr<const driver::Mlx5dv> mlx5dv_;
  const bool has_second_path_;
  std::shared_ptr<rdma::CompletionQueue> queue_;
  std::unique_ptr<rdma::QueuePair> queue_pair_;
  mlx5dv_qp sends_{};
  mlx5dv_cq completions_{};
  softhca::RingMemory results_;
  std::shared_ptr<rdma::MemoryRegion> results_region_;
};

// The other end, to which nothing is posted either. Kernels of the peer write into memory for which
// they have keys, and into the slots of this board.
class DirectTarget {
 public:
  // Throws VerbsError, RegistrationError.
  DirectTarget(const Rail& rail, const rdma::QueuePairOptions& options,
               std::shared_ptr<Board> board, const rdma::QueuePairAddress& source);
  ~DirectTarget();
  DirectTarget(const DirectTarget&) = delete;
  DirectTarget& operator=(const DirectTarget&) = delete;

  rdma::QueuePairAddress address() const { return queue_pair_->address(); }
  std::uint64_t slots() const noexcept { return slots_->address(); }  // of slot 0
  std::uint32_t slots_key() const noexcept { return slots_->rkey(); }

 private:
  const std::shared_ptr<Board> board_;
  std::shared_ptr<rdma::CompletionQueue> queue_;
  std::shared_ptr<rdma::MemoryRegion> slots_;
  std::unique_ptr<rdma::QueuePair> queue_pair_;  // destroyed first
};

}  // namespace zerohop::engine
