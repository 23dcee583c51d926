// Copies made by the CPU for a Peer on this host: the p2p route for host memory.
//
// Short copies run within the call, long ones on a thread of the Endpoint; those of one Peer run in
// the order of the calls. Order with the Peer's devices is kept by waiting: a copy waits briefly
// for the devices, and is otherwise left to them; device work waits for the copies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/path/local/copy_queue.hpp"
#include "engine/path/local/neighbour.hpp"
#include "engine/path/path.hpp"
#include "engine/path/pending_work.hpp"
#include "engine/path/program_order.hpp"
#include "engine/path/verbs/peer_rails.hpp"

namespace zerohop::engine {

class LocalPath : public Path, public std::enable_shared_from_this<LocalPath> {
 public:
  struct Services {
    std::shared_ptr<const PeerState> state;
    std::shared_ptr<Poller> poller;
    std::shared_ptr<RouteBook> book;
    std::shared_ptr<PeerRails> rails;
    std::shared_ptr<PendingWork> pending;
    std::weak_ptr<CopyQueue> copy_queue;  // of the Endpoint; its thread holds paths
    std::shared_ptr<CallStream> streams;
    std::string no_neighbourhood;  // why this Endpoint has none; empty: it has one
  };
  explicit LocalPath(Services services) : s_(std::move(services)) {}

  // Where to connect to the peer's process. Call it before the Peer is alive.
  void meet(std::string local_server, const shm::Token& token);
  const std::shared_ptr<Neighbour>& neighbour() const noexcept { return neighbour_; }  // null: none
  std::string why_not() const;          // why it has no neighbour; empty: it has one
  static std::string why_not_mapped();  // of memory without a local key

  bool takes(const Call& call) const override {
    return !call.on_gpus && call.options.may_be_p2p() &&
           (neighbour_ || !call.options.require.empty());
  }
  bool brief() const noexcept override { return neighbour_ != nullptr; }
  TransferPtr begin(const Call& call, std::string& why_not) override;
  std::shared_ptr<const Route> route(const Pair& pair, std::string& why_not) const override;
  bool idle() const override { return s_.pending->host_copies <= 0; }
  void end() noexcept override;
  void sweep() override;

  // The short ways, if no earlier work must be waited for: everything ends within the call. False:
  // not possible. made: receives the Transfer; null: not wanted.
  bool copy_at_once(ibv_wr_opcode opcode, const Pair& pair, const TransferOptions& options,
                    TransferPtr* made);
  bool notify_at_once(const TransferOptions& options, TransferPtr* made);
  // Consecutive, unregistered host bytes.
  struct Parts {
    std::span<const std::byte> head, body;
  };
  bool put_at_once(const Parts& parts, const RemoteMemory& there, const TransferOptions& options);

  // For host memory, or for none.
  Neighbour::Reached reach(const Pair& pair, const Neighbour::Patience& patience) const;
  Neighbour::Patience patience(const TransferOptions& options) const noexcept {
    return {.seconds = options.timeout.value_or(s_.state->default_timeout()),
            .insists = !options.require.empty()};
  }

  // The work after copies are placed. A notification must not overtake data or earlier
  // notifications that a device carries: then it follows them.
  void finish(const NeighbourEnd& end, Room room) noexcept;

 private:
  TransferPtr begin_at_once(const Call& call);
  Neighbour::Reached add_piece(NeighbourCopy& copy, const Pair& pair, const Call& call) const;
  TransferPtr begin_copy(NeighbourCopy&& copy);
  void make_copy(const NeighbourCopy& copy) noexcept;
  CopyQueue::Step take_step(NeighbourCopy& copy) noexcept;
  bool waits_for_room(NeighbourCopy& copy) const noexcept;
  void notify_by_device(const TransferPtr& transfer, Message message, Room room) noexcept;
  Failure why_not_copied(shm::Copied outcome, Effect effect) const noexcept;

  // --- the short ways (local_path_at_once.cpp) ---
  bool may_be_at_once(const TransferOptions& options) const;
  template <typename MoveIt>
  bool at_once(Operation operation, std::uint64_t nbytes, const shm::RemoteMapping* mapping,
               const TransferOptions& options, TransferPtr* made, MoveIt&& move);

  // Bytes copied within the call: a fraction of a millisecond, far longer than waking a thread
  // takes.
  static constexpr std::uint64_t kCopiedInCall = std::uint64_t{1} << 20;

  const Services s_;
  std::shared_ptr<Neighbour> neighbour_;
};

}  // namespace zerohop::engine
