// Registered memory of each rank of a group of GPUs, such as the parts of a Segment. Calls whose
// arrays lie there on all ranks need no arena: kernels access them where they are.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/layout.hpp"
#include "engine/collective/group_plan.hpp"
#include "engine/memory/memory.hpp"
#include "engine/path/gpu/kernel_reach.hpp"
#include "engine/peer/peer.hpp"
#include "gpu/group_call.hpp"

namespace zerohop::engine::collective {

// Whether all that others access of this rank's arrays lies in that memory; if they access nothing,
// whether any of its arrays does. False also if a call stores into what others read.
bool lies_in(const gpu::GroupCall& call, const Extent& memory) noexcept;

// Thread-safe once all have met.
class GroupPart {
 public:
  // own: of this rank, on its GPU. Throws RegistrationError (closed).
  GroupPart(const GroupPlace& place, Memory own);

  // Another rank's. Throws RouteUnavailable (kernels cannot read and write it), CudaError,
  // PeerLost.
  void meet(std::uint32_t rank, const std::shared_ptr<Peer>& peer, const RemoteMemory& memory,
            double timeout);

  // While it lives, all ranks' memory stays where it is.
  struct Hold {
    std::vector<std::shared_ptr<const void>> kept;
  };
  // Makes it a call in place. Null: its arrays lie elsewhere, or a rank has closed its memory.
  std::shared_ptr<Hold> hold(gpu::GroupCall& call) const noexcept;

 private:
  struct Far {
    std::shared_ptr<shm::LocalSession> session;
    GpuReach::Part part;
  };

  void name(std::uint32_t rank, const RemoteMemory& memory);

  const GroupPlace place_;
  const Memory own_;
  const Extent extent_;   // of `own_`
  std::vector<Far> far_;  // by rank
  std::array<std::uint64_t, gpu::kGroupRanks> begins_{};
  std::array<std::uint32_t, gpu::kGroupRanks> names_{};  // the same on all ranks
};

}  // namespace zerohop::engine::collective
