// What kernels of this process may do with memory of a peer, without a call of a CPU for each
// access.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "base/deadline.hpp"
#include "engine/path/gpu/gpu_path.hpp"
#include "engine/path/verbs/device_path.hpp"
#include "engine/peer/direct_links.hpp"

namespace zerohop::engine {

class KernelAccess {
 public:
  // gpu: outlives it.
  KernelAccess(std::shared_ptr<const PeerState> state, const GpuPath& gpu,
               std::shared_ptr<const DevicePath> devices, std::unique_ptr<DirectLinks> links)
      : state_(std::move(state)),
        gpu_(gpu),
        devices_(std::move(devices)),
        links_(std::move(links)) {}

  // The arrays must be contiguous and not empty. All throw PeerLost, RegistrationError,
  // RouteUnavailable, std::invalid_argument.
  // To put, get and notify by themselves, in mapped memory; throws CudaError, too. timeout: seconds
  // for the other process to answer.
  KernelReach mapped(const Pair& pair, Hearers hearers, double timeout) const;
  // To write entries that a CPU carries out by write() and others.
  EntryReach entries(const Pair& pair) const;
  // To drive a queue pair by themselves; throws VerbsError and TransferTimeout, too.
  DirectReach direct(const Pair& pair, const RingPlaces& places, const Deadline& deadline);

  DirectLinks& links() const noexcept { return *links_; }

 private:
  void check(const Pair& pair) const;

  const std::shared_ptr<const PeerState> state_;
  const GpuPath& gpu_;
  const std::shared_ptr<const DevicePath> devices_;
  const std::unique_ptr<DirectLinks> links_;
};

}  // namespace zerohop::engine
