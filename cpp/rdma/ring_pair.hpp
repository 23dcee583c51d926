// A queue pair whose sends and completions are written and read in its rings, not by verbs, as the
// provider mlx5 of libibverbs does it: by kernels of a GPU.
#pragma once

#include <infiniband/mlx5dv.h>

#include "rdma/queue_pair.hpp"

namespace zerohop::rdma {

class RingPair {
 public:
  virtual ~RingPair() = default;

  virtual QueuePairAddress address() const = 0;
  virtual std::uint32_t number() const noexcept = 0;
  virtual ibv_qp_state state() const = 0;                    // throws VerbsError
  virtual void connect(const QueuePairAddress& remote) = 0;  // to RTS; throws VerbsError
  virtual const mlx5dv_qp& sends() const noexcept = 0;       // of the adapter's layout
  virtual const mlx5dv_cq& completions() const noexcept = 0;
};

}  // namespace zerohop::rdma
