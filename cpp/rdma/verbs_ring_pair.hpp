// Rings of a queue pair that verbs made, in memory of its provider's choice; those of the software
// HCA may be placed.
#pragma once

#include <memory>

#include "driver/copier.hpp"
#include "driver/mlx5dv.hpp"
#include "rdma/ring_pair.hpp"

namespace zerohop::rdma {

// Memory for a ring of the software HCA, which reaches a GPU's by `copier`. Null: the provider's.
struct PlacedRing {
  void* at = nullptr;
  std::size_t nbytes = 0;
  std::shared_ptr<driver::Copier> copier{};
};

class VerbsRingPair final : public RingPair {
 public:
  // Both rings hold at least that many entries, which may take several blocks each. Throws
  // VerbsError.
  VerbsRingPair(const std::shared_ptr<ProtectionDomain>& domain, const driver::Mlx5dv& mlx5dv,
                QueuePairOptions options, const PlacedRing& sends = {},
                const PlacedRing& completions = {});

  QueuePairAddress address() const override { return queue_pair_->address(); }
  std::uint32_t number() const noexcept override { return queue_pair_->number(); }
  ibv_qp_state state() const override { return queue_pair_->state(); }
  void connect(const QueuePairAddress& remote) override { queue_pair_->connect(remote); }
  const mlx5dv_qp& sends() const noexcept override { return sends_; }
  const mlx5dv_cq& completions() const noexcept override { return completions_; }

 private:
  std::shared_ptr<CompletionQueue> queue_;
  std::unique_ptr<QueuePair> queue_pair_;
  mlx5dv_qp sends_{};
  mlx5dv_cq completions_{};
};

}  // namespace zerohop::rdma
