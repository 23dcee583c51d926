// The connection to one remote Endpoint. A Peer chooses the path of each call and delegates to it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/causes.hpp"
#include "base/locks.hpp"
#include "engine/path/gpu/gpu_path.hpp"
#include "engine/path/local/local_path.hpp"
#include "engine/path/local/neighbourhood.hpp"
#include "engine/peer/checks.hpp"
#include "engine/peer/kernel_access.hpp"
#include "engine/peer/lookups.hpp"
#include "engine/peer/messages.hpp"
#include "engine/peer/peer_host.hpp"

namespace zerohop::engine {

class Peer : public std::enable_shared_from_this<Peer> {
 public:
  using Identity = PeerState::Identity;
  using Host = PeerHost;
  using Pair = engine::Pair;
  using Parts = LocalPath::Parts;

  static std::shared_ptr<Peer> create(std::shared_ptr<const Host> host, RailServices services,
                                      Identity identity);

  const Identity& identity() const noexcept { return state_->identity(); }
  bool alive() const noexcept { return state_->alive(); }
  std::string why_lost() const { return state_->why_lost(); }  // empty while it is alive
  // See Done::on_set() and forget().
  Done::Id on_lost(std::function<void()> callback) { return state_->on_lost(std::move(callback)); }
  void forget(Done::Id loss) noexcept { state_->forget(loss); }

  // --- operations; each throws PeerLost, RegistrationError, RouteUnavailable or
  // std::invalid_argument at once; later errors are in the Transfer ---
  TransferPtr write(std::span<const Pair> pairs, const TransferOptions& options);
  TransferPtr read(std::span<const Pair> pairs, const TransferOptions& options);
  TransferPtr write_pages(const Pages& pages, const TransferOptions& options);
  TransferPtr read_pages(const Pages& pages, const TransferOptions& options);
  // for_kernel: see TransferOptions.
  TransferPtr fetch_add(const RemoteMemory& word, std::uint64_t value, bool for_kernel = false);
  TransferPtr compare_swap(const RemoteMemory& word, std::uint64_t expected, std::uint64_t desired,
                           bool for_kernel = false);
  TransferPtr notify(const Notification& notification);
  // As write() and notify(), but returns null, without a Transfer, if all succeeded within the
  // call.
  TransferPtr put(const Pair& pair, const TransferOptions& options);
  TransferPtr put(const Notification& notification);
  // For unregistered host bytes, which p2p can send. False: it could not be done at once, and no
  // notification was put. there: of its layout only the address is used.
  bool put(const Parts& parts, const RemoteMemory& there, const Notification& notification);
  TransferPtr send(const Memory& from, std::uint64_t tag) { return messages_->send(from, tag); }
  TransferPtr receive(const Memory& into, std::uint64_t tag) {
    return messages_->receive(into, tag);
  }
  // This end takes no more messages with that context, and sends none.
  void end_context(Context context) { messages_->end_context(context); }

  Lookups& lookups() const noexcept { return *lookups_; }

  // Includes the settings of the queue pair.
  Route route(const Memory& local, const RemoteMemory& remote) const;
  std::vector<RouteBook::Row> route_stats() const { return book_->rows(); }

  KernelAccess& kernels() const noexcept { return *kernels_; }
  PeerRails& rails() const noexcept { return *rails_; }
  const std::shared_ptr<Neighbour>& neighbour() const noexcept { return local_->neighbour(); }
  std::map<int, GpuMappings::Mapped> mapped() const { return gpu_->mapped(); }

  // Waits until everything posted is done, at most until `deadline`, then leaves. Idempotent. On
  // return the peer's process no longer accesses memory of this one: close() waits up to five
  // seconds for its running copies, and reports a process that was stopped meanwhile.
  void close(const Deadline& deadline);

  bool idle() const;        // nothing posted or queued
  void count_unfinished();  // the deadline has passed: outstanding transfers will be cut off
  std::uint64_t unfinished() const noexcept { return unfinished_.load(std::memory_order_relaxed); }

  // --- for the progress thread ---
  const std::optional<Invitation>& invitation() const noexcept { return invitation_; }
  void meet(std::string local_server, const shm::Token& token);  // before become_alive()
  void learn(Identity identity) { state_->learn(std::move(identity)); }
  void become_alive();
  // Everything pending and later fails with PeerLost(reason). Returns false if it was already lost.
  bool lose(const std::string& reason);
  void sweep();  // releases what the peer has closed; called periodically
  Checks& checks() const noexcept { return *checks_; }
  bool wants_checks() const noexcept { return host_->integrity; }
  void check_transfers();        // from here on; call before become_alive()
  std::optional<Secret> secret;  // that opened the connection, on the side that dialled

  // The object that represents this peer in the user's language; kept so that there is only one.
  std::weak_ptr<void> face;

 private:
  Peer(std::shared_ptr<const Host> host, std::shared_ptr<Poller> poller, Identity identity);
  void join_paths();  // once a shared_ptr exists
  void wait_for_its_copies();

  bool is_checked(const TransferOptions& options) const noexcept {
    return checks_->on() && !options.for_kernel;
  }
  void check_call(const TransferOptions& options) const;
  void note_refusal(const TransferOptions& options, const std::string& reason);
  void name_wrong_pair(const Call& call) const;

  TransferPtr move(const Call& call);
  TransferPtr transfer(const Call& call);
  TransferPtr checked(const Call& call);
  bool needs_no_transfer(const TransferOptions& options) const;
  TransferPtr transfer_pages(ibv_wr_opcode opcode, const Pages& pages,
                             const TransferOptions& options);
  TransferPtr atomic(ibv_wr_opcode opcode, const RemoteMemory& word,
                     const DevicePath::Operands& operands, bool for_kernel);

  const std::shared_ptr<const Host> host_;
  const std::shared_ptr<Poller> poller_;
  const std::shared_ptr<RouteBook> book_;
  const std::shared_ptr<PeerState> state_;
  const std::shared_ptr<CallStream> streams_;
  const std::shared_ptr<PendingWork> pending_;
  const std::shared_ptr<PeerRails> rails_;
  const std::shared_ptr<DevicePath> devices_;
  const std::shared_ptr<StagedPath> staged_;
  const std::shared_ptr<LocalPath> local_;
  const std::unique_ptr<GpuPath> gpu_;
  const std::array<Path*, 4> paths_;  // the preferred one first
  bool brief_ = false;                // whether any can begin briefly; set before it is alive
  const std::unique_ptr<Messages> messages_;
  std::shared_ptr<Checks> checks_;
  std::shared_ptr<Lookups> lookups_;
  std::unique_ptr<KernelAccess> kernels_;
  std::optional<Invitation> invitation_;       // progress thread only
  Causes refusals_;                            // of preferred paths, already logged
  std::atomic<std::uint64_t> unfinished_{0};   // outstanding transfers at that time
  std::atomic<bool> left_{false};              // lost, and all pending transfers have ended
  mutable Mutex<Rank::peer> mutex_;            // guards the next
  std::weak_ptr<shm::LocalClient> dismissed_;  // the client of the invitation, once lost
};

}  // namespace zerohop::engine
