// How a GPU of this process reaches two arrays, one of this process and one of a Peer on this host.
#pragma once

#include <memory>
#include <string>

#include "base/layout.hpp"
#include "base/short_list.hpp"
#include "engine/path/gpu/gpu_ranges.hpp"
#include "engine/stats/route.hpp"
#include "gpu/device.hpp"
#include "gpu/peer_link.hpp"
#include "shm/local_session.hpp"

namespace zerohop::engine {

struct GpuReach {
  // A part of the Peer's array, to be held while it is copied.
  struct Part {
    std::shared_ptr<const shm::RemoteMapping> mapping;
    std::shared_ptr<const void> memory;  // keeps it mapped for the GPU
  };
  // Neither taken away nor unmapped while a GPU uses it.
  struct Held {
    Part part;
    shm::LocalSession::Hold hold;
  };
  std::shared_ptr<shm::LocalSession> session;
  std::string reason;                           // why it is not reached; empty: success
  std::shared_ptr<const gpu::Device> device{};  // the one that copies
  std::shared_ptr<const gpu::PeerLink> link{};  // to the Peer's GPU; null: a host array
  using Spots = ShortList<GpuSpot, 2>;
  ShortList<Part, 2> parts{};
  Spots remote{};
  Spots local{};
  std::shared_ptr<const Route> route{};

  // Whether the spots, in order and without gaps, cover the extent of an array.
  static bool covers(const Spots& spots, const Extent& extent) noexcept {
    return !spots.empty() && spots.front().begin <= extent.begin && extent.end <= spots.back().end;
  }
};

}  // namespace zerohop::engine
