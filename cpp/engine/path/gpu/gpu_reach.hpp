// What a GPU of this process reaches of two arrays, one here and one of a Peer of this host, and
// how.
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
  // Of the Peer's array: to be held while it is copied.
  struct Part {
    std::shared_ptr<const shm::RemoteMapping> mapping;
    std::shared_ptr<const void> memory;  // keeps it mapped for the GPU
  };
  // What is not taken away, nor unmapped, while a GPU uses it.
  struct Held {
    Part part;
    shm::LocalSession::Hold hold;
  };
  std::shared_ptr<shm::LocalSession> session;
  std::string reason;                           // why it is not reached; empty: it is
  std::shared_ptr<const gpu::Device> device{};  // that copies
  std::shared_ptr<const gpu::PeerLink> link{};  // to the Peer's GPU; null: the array is in the
                                                // host's memory
  using Spots = ShortList<GpuSpot, 2>;
  ShortList<Part, 2> parts{};
  Spots remote{};
  Spots local{};
  std::shared_ptr<const Route> route{};

  // Whether spots, which are in order and without gaps, are where an array lies.
  static bool covers(const Spots& spots, const Extent& extent) noexcept {
    return !spots.empty() && spots.front().begin <= extent.begin && extent.end <= spots.back().end;
  }
};

}  // namespace zerohop::engine
