// A queue pair that kernels of this process drive by themselves (GPU-initiated RDMA): its rings lie
// in memory that can be mapped into a GPU, and nothing is posted to it through verbs.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "driver/mlx5dv.hpp"
#include "driver/ring_memory.hpp"
#include "engine/notify/board.hpp"
#include "engine/path/verbs/gpu_rings.hpp"
#include "engine/path/verbs/ring_places.hpp"
#include "engine/rail.hpp"
#include "rdma/memory_region.hpp"
#include "rdma/ring_pair.hpp"

namespace zerohop::engine {

class DirectQueuePair {
 public:
  static constexpr std::uint32_t kEntries = 512;  // waiting or outstanding, at least

  // gpu: runs the kernels. Throws RouteUnavailable if the rail's device has no such rings, or the
  // GPU's memory is not open to adapters; VerbsError, CudaError, RegistrationError,
  // TransferTimeout.
  DirectQueuePair(const Rail& rail, const rdma::QueuePairOptions& options, const RingPlaces& places,
                  const std::shared_ptr<const gpu::Device>& gpu, const Deadline& deadline);

  rdma::QueuePairAddress address() const { return pair_->address(); }
  std::uint32_t number() const noexcept { return pair_->number(); }
  void connect(const rdma::QueuePairAddress& target) { pair_->connect(target); }

  const mlx5dv_qp& sends() const noexcept { return pair_->sends(); }
  const mlx5dv_cq& completions() const noexcept { return pair_->completions(); }
  // Whether that part of a ring lies in the GPU's memory.
  bool on_gpu(std::uint64_t address) const noexcept {
    return on_gpu_ && on_gpu_->contains(address);
  }
  // Where the rings lie, for a route's reason: half a sentence.
  const std::string& places() const noexcept { return places_; }
  // Destination of the old values of atomics, one per block of the ring, and of a byte behind them.
  std::uint64_t results() const noexcept { return results_; }
  std::uint32_t results_key() const noexcept { return results_region_->lkey(); }
  bool software() const noexcept { return software_; }
  // Whether the adapter may write to a GPU beside its usual path (Data Direct).
  bool has_second_path() const noexcept { return has_second_path_; }
  // Why it is in the error state; empty: it is not.
  std::string failure() const;

 private:
  void make_on_software(const Rail& rail, const rdma::QueuePairOptions& options,
                        const RingPlaces& places, std::size_t completions_at);
  void make_by_devx(const Rail& rail, const rdma::QueuePairOptions& options,
                    const RingPlaces& places, std::size_t completions_at);
  void make_results(const Rail& rail, RingPlace place, std::size_t at);
  void check_layout(const Rail& rail) const;
  std::vector<mlx5_err_cqe> copy_completions() const;  // throws CudaError

  const bool software_;
  const std::shared_ptr<const driver::Mlx5dv> mlx5dv_;
  const bool has_second_path_;
  const std::string places_;
  // The memory outlives the pair.
  std::unique_ptr<GpuRings> on_gpu_;  // null: none
  std::vector<std::unique_ptr<driver::RingMemory>>
      pages_;  // of the host, for what is laid out here
  std::unique_ptr<rdma::RingPair> pair_;
  std::uint64_t results_ = 0;
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
