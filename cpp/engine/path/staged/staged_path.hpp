// Transfers of a Peer with GPU memory that no device reaches, and messages that follow them.
#pragma once

#include <memory>
#include <span>

#include "engine/path/staged/staging.hpp"
#include "engine/path/verbs/device_path.hpp"
#include "engine/path/verbs/outgoing.hpp"

namespace zerohop::engine {

class StagedPath : public Path {
 public:
  StagedPath(Staging::Services services, std::shared_ptr<const PeerState> state,
             std::shared_ptr<PeerRails> rails, std::shared_ptr<DevicePath> devices);

  // Also what must follow staged transfers: a notification behind data that devices move.
  bool takes(const Call& call) const override;
  bool brief() const noexcept override { return false; }
  TransferPtr begin(const Call& call, std::string& why_not) override;
  std::shared_ptr<const Route> route(const Pair& pair, std::string& why_not) const override {
    return devices_->route(pair, why_not);
  }
  bool idle() const override { return !pending(); }
  void end() noexcept override {}  // with the queue pairs

  // A message that follows everything staged so far, and the copies of `work`.
  void post_later(const TransferPtr& transfer, Outgoing&& outgoing, StagedWork&& work);

  bool pending() const noexcept { return pending_->staged > 0; }
  bool answering() const noexcept { return staging_->answering(); }
  void wait_for_room(const Deadline& until) const { staging_->wait_for_room(until); }
  // Atomics have no message that could follow, so the caller waits. Throws TransferTimeout.
  void wait(const Deadline& until) const;

 private:
  TransferPtr post(const Call& call, const DevicePath::Move& move, const Deadline& until);
  TransferPtr notify_behind(TransferPtr data, const Notification& notification);
  StagedPiece make_piece(const Pair& pair, RemoteAccess needed, Transfer& transfer) const;

  const std::shared_ptr<const PeerState> state_;
  const std::shared_ptr<PeerRails> rails_;
  const std::shared_ptr<DevicePath> devices_;
  const std::shared_ptr<PendingWork> pending_;
  const std::shared_ptr<Poller> poller_;
  const std::shared_ptr<Staging> staging_;
};

}  // namespace zerohop::engine
