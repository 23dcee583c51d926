// The two-sided operations of a Peer: send and recv.
#pragma once

#include <memory>
#include <optional>

#include "engine/integrity/checker.hpp"
#include "engine/memory/host_registrations.hpp"
#include "engine/path/pending_work.hpp"
#include "engine/path/staged/staged_path.hpp"

namespace zerohop::engine {

// Any thread. Throws what Path::begin() throws.
class Messages {
 public:
  struct Services {
    std::shared_ptr<const PeerState> state;
    std::shared_ptr<Poller> poller;
    std::shared_ptr<PeerRails> rails;
    std::shared_ptr<DevicePath> devices;
    std::shared_ptr<StagedPath> staged;
    std::shared_ptr<PendingWork> pending;
    std::shared_ptr<HostRegistrations> registrations;
    std::shared_ptr<SendPool> sends;
    std::shared_ptr<Checker> checker;
  };
  explicit Messages(Services services) : s_(std::move(services)) {}

  // Sends a checksum with each message from here on, which the receiver compares.
  void check_all() noexcept { sealed_ = true; }

  TransferPtr send(const Memory& from, std::uint64_t tag);
  TransferPtr receive(const Memory& into, std::uint64_t tag);
  void end_context(Context context) { s_.rails->message_rail().end_context(context); }

 private:
  // What is sent instead of a range in place: the bytes themselves, or a packed copy.
  enum class Packing { none, buffer, eager };
  Packing packing(const Memory& from, const PeerRail& peer_rail) const;
  Outgoing wrap(const Memory& from, std::uint64_t tag, Packing packing, Transfer& transfer) const;
  TransferPtr make_transfer(const Memory& memory, bool staged, const PeerRail& peer_rail) const;
  void post(const TransferPtr& transfer, Outgoing&& outgoing, PeerRail& peer_rail) const;
  TransferPtr post_receive(const Memory& into, std::uint64_t tag,
                           std::shared_ptr<std::optional<Seal>> seal);

  // --- checksums (messages_sealed.cpp) ---
  Seal seal_of(const Memory& memory, const Deadline& until) const;
  TransferPtr receive_sealed(const Memory& into, std::uint64_t tag);

  const Services s_;
  bool sealed_ = false;  // set before the Peer is alive
};

}  // namespace zerohop::engine
