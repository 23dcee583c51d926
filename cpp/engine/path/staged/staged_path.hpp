// What a Peer moves to and from GPU memory that no device reaches, and how messages follow that.
#pragma once

#include <memory>
#include <span>

#include "engine/path/staged/staging.hpp"
#include "engine/path/verbs/device_path.hpp"
#include "engine/path/verbs/outgoing.hpp"

namespace zerohop::engine {

// Any thread. What it throws: see DevicePath.
class StagedPath {
 public:
  StagedPath(Staging::Services services, std::shared_ptr<const PeerState> state,
             std::shared_ptr<PeerRails> rails);

  Transferring post(ibv_wr_opcode opcode, std::span<const Pair> pairs, const DevicePath::Move& move,
                    Routes::RoutePtr route, const Deadline& until);
  // The notification of data that devices move, behind what is staged. `data` was given none.
  Transferring notify_behind(Transferring data, const Notification& notification);
  // A message that follows all that is staged now, and the copies of `work`.
  void post_later(const Transferring& transfer, Outgoing&& outgoing, StagedWork&& work);

  bool pending() const noexcept { return staging_->pending(); }
  bool answering() const noexcept { return staging_->answering(); }
  void wait_for_room(const Deadline& until) const { staging_->wait_for_room(until); }
  // Atomics have no message that could follow: who calls waits. Throws TransferTimeout.
  void wait(const Deadline& until) const;
  // What devices and this have to do: see PeerRails::work().
  PeerRails::Work device_work() const { return rails_->work(pending()); }

 private:
  StagedPiece make_piece(const Pair& pair, RemoteAccess needed, Transfer& transfer) const;

  const std::shared_ptr<const PeerState> state_;
  const std::shared_ptr<PeerRails> rails_;
  const std::shared_ptr<Poller> poller_;
  const std::shared_ptr<Staging> staging_;
};

}  // namespace zerohop::engine
