// Transfers of a Peer with GPU memory that no device reaches, and messages that follow them.
#pragma once

#include <memory>
#include <span>

#include "engine/path/staged/staging.hpp"
#include "engine/path/verbs/device_path.hpp"
#include "engine/path/verbs/outgoing.hpp"

namespace zerohop::engine {

// Any thread. For its exceptions see DevicePath.
class StagedPath {
 public:
  StagedPath(Staging::Services services, std::shared_ptr<const PeerState> state,
             std::shared_ptr<PeerRails> rails);

  Transferring post(ibv_wr_opcode opcode, std::span<const Pair> pairs, const DevicePath::Move& move,
                    Routes::RoutePtr route, const Deadline& until);
  // The notification for data that devices move, after all staged transfers. `data` has none
  // itself.
  Transferring notify_behind(Transferring data, const Notification& notification);
  // A message that follows everything staged so far, and the copies of `work`.
  void post_later(const Transferring& transfer, Outgoing&& outgoing, StagedWork&& work);

  bool pending() const noexcept { return staging_->pending(); }
  bool answering() const noexcept { return staging_->answering(); }
  void wait_for_room(const Deadline& until) const { staging_->wait_for_room(until); }
  // Atomics have no message that could follow, so the caller waits. Throws TransferTimeout.
  void wait(const Deadline& until) const;
  // Pending work of the devices and of this path: see PeerRails::work().
  PeerRails::Work device_work() const { return rails_->work(pending()); }

 private:
  StagedPiece make_piece(const Pair& pair, RemoteAccess needed, Transfer& transfer) const;

  const std::shared_ptr<const PeerState> state_;
  const std::shared_ptr<PeerRails> rails_;
  const std::shared_ptr<Poller> poller_;
  const std::shared_ptr<Staging> staging_;
};

}  // namespace zerohop::engine
