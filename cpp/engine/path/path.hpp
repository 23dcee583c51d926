// One way to move arrays to and from a peer. A Peer has a list of them, the preferred one first,
// and passes each call to the first path that takes it.
#pragma once

#include <memory>
#include <string>

#include "engine/path/call.hpp"
#include "engine/stats/route.hpp"

namespace zerohop::engine {

// Any thread. A path does not know the Peer, and other paths only as far as they are given to it
// when it is made. It waits for work of other paths that a call must not overtake: see PendingWork.
class Path {
 public:
  Path() = default;
  virtual ~Path() = default;
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  // Whether the call is for this path, by its options and the kind of its memory. A path that
  // cannot reach the peer at all takes only calls that require its route: begin() says why not.
  virtual bool takes(const Call& call) const = 0;
  // Whether begin() can be brief: see TransferOptions::briefly.
  virtual bool brief() const noexcept = 0;
  // Null, with the reason: the next path that takes the call must carry it out. Null without a
  // reason: the call may only be brief, and would not be.
  // Throws PeerLost, RegistrationError, RouteUnavailable, std::invalid_argument, TransferTimeout,
  // CudaError, VerbsError. Nothing was transferred then, unless the effect of the error says
  // otherwise (copies by a GPU).
  virtual TransferPtr begin(const Call& call, std::string& why_not) = 0;
  // The route of such a call between these two arrays; null, with the reason, as in begin().
  // why_not: on entry, why the paths before it do not move them.
  virtual std::shared_ptr<const Route> route(const Pair& pair, std::string& why_not) const = 0;

  virtual bool idle() const = 0;  // nothing posted or queued
  // The peer is lost. Once it returns, or soon after, no call accesses memory of the transfers.
  virtual void end() noexcept = 0;
  virtual void sweep() {}  // releases what the peer has closed; called periodically
};

}  // namespace zerohop::engine
