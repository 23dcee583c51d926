// The connection to one remote Endpoint: transfers, messages, look-ups.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/causes.hpp"
#include "base/locks.hpp"
#include "engine/channel/control_message.hpp"
#include "engine/channel/questions.hpp"
#include "engine/integrity/check_line.hpp"
#include "engine/memory/memory.hpp"
#include "engine/memory/pages.hpp"
#include "engine/memory/registrations.hpp"
#include "engine/path/gpu/gpu_copies.hpp"
#include "engine/path/gpu/kernel_reach.hpp"
#include "engine/path/local/copy_queue.hpp"
#include "engine/path/local/neighbour.hpp"
#include "engine/path/local/neighbourhood.hpp"
#include "engine/path/routes.hpp"
#include "engine/path/staged/staging.hpp"
#include "engine/path/transfer_options.hpp"
#include "engine/path/verbs/striping.hpp"
#include "engine/path/verbs/verbs_path.hpp"
#include "engine/peer/inquiry.hpp"
#include "engine/peer/peer_host.hpp"
#include "engine/stats/route_books.hpp"
#include "engine/wait/transfer.hpp"

namespace zerohop::engine {

class Peer : public std::enable_shared_from_this<Peer> {
 public:
  struct Identity {
    EndpointId id{};
    std::string name;
    std::string host_name;
    std::uint32_t pid = 0;
  };
  using Host = PeerHost;

  static std::shared_ptr<Peer> create(Host host, PathServices services, Identity identity);

  const Identity& identity() const noexcept { return identity_; }
  bool alive() const noexcept { return state_.load(std::memory_order_acquire) == State::alive; }
  std::string why_lost() const;  // empty while it is not

  // --- operations; each throws PeerLost, RegistrationError, RouteUnavailable or
  // std::invalid_argument at once, what happens later is in the Transfer ---
  using Transferring = std::shared_ptr<Transfer>;
  using Pair = std::pair<const Memory*, const RemoteMemory*>;
  Transferring write(std::span<const Pair> pairs, const TransferOptions& options);
  Transferring read(std::span<const Pair> pairs, const TransferOptions& options);
  Transferring write_pages(const Pages& pages, const TransferOptions& options);
  Transferring read_pages(const Pages& pages, const TransferOptions& options);
  // for_kernel: see TransferOptions.
  Transferring fetch_add(const RemoteMemory& word, std::uint64_t value, bool for_kernel = false);
  Transferring compare_swap(const RemoteMemory& word, std::uint64_t expected, std::uint64_t desired,
                            bool for_kernel = false);
  Transferring notify(const Notification& notification);
  // As write() and notify(), but null, and no Transfer is made, where all ended well in the call.
  Transferring put(const Pair& pair, const TransferOptions& options);
  Transferring put(const Notification& notification);
  // Host bytes, one behind the other, that nobody has registered: p2p needs no more. False: it
  // cannot be done at once; no notification was put. there: of its layout the address alone.
  struct Parts {
    std::span<const std::byte> head, body;
  };
  bool put(const Parts& parts, const RemoteMemory& there, const Notification& notification);
  Transferring send(const Memory& from, std::uint32_t tag);
  Transferring receive(const Memory& into, std::uint32_t tag);

  // The memory the peer shares under that name; waits until `deadline` for it to be published, or
  // answers nullopt at once if `now`. Throws TransferTimeout, PeerLost.
  std::optional<RemoteMemory> lookup(const std::string& name, const Deadline& deadline, bool now);
  // The same for an event loop, which waits without a thread.
  std::shared_ptr<Inquiry> ask(const std::string& name, bool now);
  // Questions to the peer whose answer somebody waits for.
  std::size_t questions() const { return lookups_.size() + direct_questions_.size(); }

  // With the settings of the queue pair.
  Route route(const Memory& local, const RemoteMemory& remote) const;

  // For kernels of this process to put, get and notify by themselves, as long as what it keeps is
  // kept. Throws RouteUnavailable where there is no p2p, std::invalid_argument, CudaError.
  KernelReach reach_for_kernels(const Memory& local, const RemoteMemory& remote, Hearers hearers,
                                const std::optional<double>& timeout) const;
  // For entries that kernels write to be carried out by write() and others. Throws RouteUnavailable
  // where no device serves, std::invalid_argument.
  EntryReach reach_for_entries(const Memory& local, const RemoteMemory& remote) const;
  // For kernels to drive a queue pair by themselves. Throws RouteUnavailable, PeerLost, VerbsError,
  // std::invalid_argument, TransferTimeout (the peer does not answer).
  DirectReach reach_directly(const Memory& local, const RemoteMemory& remote,
                             const Deadline& deadline);

  struct RailReport {
    std::string device;
    std::string trouble;              // why it does not serve; empty: it does
    const PathStats* stats;           // null: it never had a queue pair
    std::uint64_t registered_nbytes;  // for messages and atomics; 0: it has no queue pair
    bool asleep;                      // ... as nothing needs one
  };
  std::vector<RailReport> rails() const;
  std::vector<RouteBook::Row> route_stats() const { return book_->rows(); }
  Neighbour* neighbour() const noexcept { return neighbour_.get(); }  // null: it is none

  // Waits until everything posted is done, `deadline` at most, then leaves. Idempotent. Afterwards
  // the peer's process touches no memory of this one: what it is copying is waited for, five
  // seconds at most; one that was stopped meanwhile is reported.
  void close(const Deadline& deadline);

  bool idle() const;  // nothing posted, nothing waiting to be
  void give_up();     // the time for that has passed: what is under way will be cut off
  std::uint64_t given_up() const noexcept { return given_up_.load(std::memory_order_relaxed); }

  // --- for the progress thread ---
  // Null: the rail's device was gone when this Peer was made.
  const std::shared_ptr<VerbsPath>& path(RailIndex rail) const noexcept { return paths_[rail]; }
  std::size_t rail_count() const noexcept { return group_->rails(); }  // that both ends have
  RailMask open_rails() const;                                         // whose paths are not closed
  // Since when its failed transfers may still arrive, and none of the rails serves.
  PathGroup::Since unsettled(RailIndex rail) const;
  PathGroup::Since dark() const;
  void set_rail_count(std::size_t count, bool global_atomics);

  // --- for the progress thread: queue pairs that sleep (peer_sleep.cpp) ---
  // Work requests and messages so far. Changes whenever this end uses the queue pairs, and when it
  // hears of the peer by them.
  std::uint64_t activity() const noexcept;
  bool asleep() const;
  // Nothing is posted any more, for the peer to be asked; nullopt: something is under way.
  std::optional<std::vector<Tally>> drowse();
  void rouse();        // goes on, as the peer does not agree
  void fall_asleep();  // as it agrees
  // At its wish. False: something is under way here, or on its way; nothing has changed.
  bool fall_asleep_with(const std::vector<Tally>& theirs);

  const std::optional<Invitation>& invitation() const noexcept { return invitation_; }
  void meet(std::string doorway, const ipc::Token& token);  // before become_alive()
  void learn(Identity identity) { identity_ = std::move(identity); }
  void become_alive();
  // Everything pending and later fails with PeerLost(reason). Returns false if it was lost before.
  bool lose(const std::string& reason);
  void on_found(std::uint64_t request, std::optional<RemoteMemory> memory);
  // The other end of a queue pair that kernels of the peer drive. Throws Error.
  std::shared_ptr<const DirectTarget> make_direct_target(
      RailIndex rail, const rdma::QueuePairAddress& source) const;
  void on_direct_opened(const DirectOpened& opened);
  bool wants_checks() const noexcept { return host_.integrity; }
  // From here on transfers are checked: before become_alive().
  void check_transfers();
  // Throws ProtocolError: it asks for too much at once, or too often for what is not its own.
  void on_sum_up(const SumUp& asked);
  void on_summed_up(const SummedUp& answer);
  std::optional<Secret> secret;  // that opened the connection, on the side that dialled

  // The object that stands for this peer in a user's language: found again, so that there is one.
  std::weak_ptr<void> face;

 private:
  friend class Inquiry;
  enum class State { connecting, alive, lost };
  struct DirectAnswer {
    std::atomic<bool> arrived{false};
    DirectOpened opened;
  };

  struct Share {
    RailIndex rail;
    Job job;
  };
  using Shares = std::vector<Share>;

  Peer(Host host, std::shared_ptr<Poller> poller, Identity identity);
  void wait_for_its_copies();
  void check_process() const;
  void check_alive() const;
  Deadline deadline(const std::optional<double>& timeout) const;
  Routes::Kind route_kind(const Memory& local, const RemoteMemory& remote) const;
  Transferring transfer(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                        const TransferOptions& options);
  Transferring transfer_by_devices(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                   const TransferOptions& options);

  // --- transfers that are checked (peer_checks.cpp) ---
  Transferring checked(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                       const TransferOptions& options);
  using Mover = std::function<Transferring(const TransferOptions&)>;
  Transferring move_and_check(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                              const TransferOptions& options, const Mover& move);
  CheckLine::Notify notifier(const TransferOptions& options);
  bool checks(const TransferOptions& options) const noexcept {
    return check_line_ && !options.for_kernel;
  }

  void check_call(const TransferOptions& options) const;
  void check_not_insisted(const TransferOptions& options, const std::string& reason);
  void note_fall(const std::string& reason) noexcept;
  void check_ends(const Pair& pair) const;
  void check_rights(const Pair& pair, RemoteAccess needed) const;
  void check_for_kernels(const Pair& pair) const;
  bool has_atomics(const RemoteMemory& remote) const;
  DirectOpened open_target(const Questions<DirectAnswer>::Asked& asked, RailIndex rail,
                           const rdma::QueuePairAddress& source, const Deadline& deadline);
  void check_pair(const Pair& pair, RemoteAccess needed) const;
  void name_wrong_pair(ibv_wr_opcode opcode, std::span<const Pair> pairs) const;
  void count(Transfer& transfer, ibv_wr_opcode opcode, bool data, bool notifies) const noexcept;
  Piece make_piece(const Pair& pair, RemoteAccess needed, RailIndex rail, Transfer& transfer) const;
  Job make_job(ibv_wr_opcode opcode, std::span<const Pair> pairs, RailIndex rail,
               const Transferring& transfer) const;

  // --- a process of this host (peer_neighbour.cpp) ---
  Transferring copy_as_neighbour(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                 const TransferOptions& options, std::string& reason);
  Transferring begin_neighbour_copy(ibv_wr_opcode opcode, NeighbourCopy&& copy,
                                    Neighbour::Reached&& last, const TransferOptions& options,
                                    std::string& reason);
  Neighbour::Reached reach_as_neighbour(const Pair& pair,
                                        const Neighbour::Patience& patience) const;
  Transferring begin_copy(NeighbourCopy&& copy);
  Transferring finish_behind_gpus(NeighbourCopy&& copy, const TransferOptions& options);
  void make_copy(const NeighbourCopy& copy) noexcept;
  CopyQueue::Step take_step(NeighbourCopy& copy) noexcept;
  bool waits_for_room(NeighbourCopy& copy) const noexcept;
  Failure why_not_copied(ipc::Copied outcome, Effect effect) const noexcept;
  void finish_copy(const NeighbourEnd& copy, Room room) noexcept;
  void notify_by_device(const Transferring& transfer, Message message, Room room) noexcept;

  // --- the same within the call (peer_at_once.cpp) ---
  // Bytes copied there: a fraction of a millisecond, and far longer than it takes to wake a thread.
  static constexpr std::uint64_t kCopiedInCall = std::uint64_t{1} << 20;
  Transferring move_at_once(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                            const TransferOptions& options);
  bool copy_at_once(ibv_wr_opcode opcode, const Pair& pair, const TransferOptions& options,
                    Transferring* made);
  bool notify_at_once(const TransferOptions& options, Transferring* made);
  bool may_be_at_once(const TransferOptions& options) const;
  template <typename MoveIt>
  bool at_once(Operation operation, std::uint64_t nbytes, const ipc::Window* window,
               const TransferOptions& options, Transferring* made, MoveIt&& move);
  bool needs_no_transfer(const TransferOptions& options) const;

  // --- what GPUs copy from and to a process of this host (peer_gpu.cpp, peer_gpu_reach.cpp) ---
  struct GpuMove {
    std::shared_ptr<const gpu::Device> device;
    ShortList<gpu::CopyPiece, gpu::FewRanges::kMost> ranges;
    gpu::PieceSource* pieces = nullptr;  // instead: of a list
    GpuCopies::Kept kept;
    std::uint64_t nbytes = 0;
    std::shared_ptr<const Route> route;
  };
  Neighbour::Reached reach_gpu_as_neighbour(const Pair& pair,
                                            const Neighbour::Patience& patience) const;
  static bool touch_gpus(std::span<const Pair> pairs);
  using Stream = std::optional<driver::CudaStream>;
  GpuReach reach_by_gpu(const Pair& pair, const Stream& stream,
                        const Neighbour::Patience& patience) const;
  static void reach_local(GpuReach& reached, const Memory& local,
                          const Neighbour::Patience& patience);
  Transferring copy_by_gpu(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                           const TransferOptions& options, std::string& reason);
  Transferring post_at_once(ibv_wr_opcode opcode, const Pair& pair, const TransferOptions& options);
  Transferring copy_by_gpu_at_once(ibv_wr_opcode opcode, const Pair& pair,
                                   const TransferOptions& options);
  static std::string hold(GpuMove& move, const GpuReach& reached, bool is_write);
  static std::string take_device(GpuMove& move, const std::shared_ptr<const gpu::Device>& device);
  Transferring begin_gpu_move(ibv_wr_opcode opcode, GpuMove&& move,
                              std::shared_ptr<ipc::Visit> visit, const TransferOptions& options,
                              std::string& reason);
  Transferring begin_gpu_copy(ibv_wr_opcode opcode, GpuMove&& move,
                              std::shared_ptr<ipc::Visit> visit, const TransferOptions& options,
                              const Deadline& until);
  void let_gpu_put(GpuCopies::Copy& copy, GpuMove& move, NeighbourEnd& after,
                   const Neighbour::Patience& patience);
  Neighbour::Patience patience_of(const TransferOptions& options) const noexcept {
    return {.seconds = options.timeout.value_or(host_.default_timeout),
            .insists = !options.require.empty()};
  }
  void cut_off_gpu_copies() const;

  // --- lists of pages (peer_pages.cpp) ---
  Transferring transfer_pages(ibv_wr_opcode opcode, const Pages& pages,
                              const TransferOptions& options);
  Transferring move_pages(ibv_wr_opcode opcode, const Pages& pages, const TransferOptions& options);
  Transferring copy_pages_as_neighbour(ibv_wr_opcode opcode, const Pages& pages,
                                       const TransferOptions& options, std::string& reason);
  Transferring copy_pages_by_gpu(ibv_wr_opcode opcode, const Pages& pages,
                                 const TransferOptions& options, std::string& reason);

  bool wait_for_devices(const TransferOptions& options) const;
  void wait_for_copies(const Deadline& until) const;
  void wait_for_host_copies(const Deadline& until) const;
  void wait_for_staged(const Deadline& until) const;
  std::string why_no_neighbour() const;
  struct DeviceWork {
    bool pending = false;  // jobs that are not done, or failed but may still arrive
    bool unseen = false;   // what the peer may not see yet, though it is done here
  };
  DeviceWork device_work() const;

  // --- GPU memory that no device reaches (peer_staging.cpp) ---
  StagedPiece make_staged_piece(const Pair& pair, RemoteAccess needed, Transfer& transfer) const;
  Transferring notify_behind(Transferring data, const Notification& notification);

  Route device_route(const Pair& pair, Route route, const std::string& not_p2p) const;

  // --- several rails (peer_rails.cpp) ---
  std::vector<Settings> rail_settings() const;
  Striping plan(std::span<const Pair> pairs, std::uint64_t nbytes) const;
  RailMask reach(std::span<const Pair> pairs) const;
  Job make_share(ibv_wr_opcode opcode, std::span<const Pair> pairs, const Stripe& stripe,
                 const Transferring& transfer) const;
  struct Move {
    std::uint64_t nbytes;
    Routes::Kind kind;
    std::optional<Notification> notification;
    bool for_kernel = false;
    bool visible = false;
  };
  Transferring stage(ibv_wr_opcode opcode, std::span<const Pair> pairs, const Move& move,
                     const Deadline& until);  // peer_staging.cpp
  Transferring transfer_by_device(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                  const Move& move, const Deadline& until);
  Transferring transfer_over_rails(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                                   const Move& move, const Deadline& until);
  bool submit_shares(Shares& shares, RailMask planned, const std::optional<Message>& message,
                     ibv_wr_opcode opcode, const Transferring& transfer);
  VerbsPath& message_path() const;
  VerbsPath& atomics_path() const;
  VerbsPath& any_path() const;
  bool all_at_rest() const;
  struct Operands {
    std::uint64_t add;  // or what is expected
    std::uint64_t swap;
  };
  Transferring atomic(ibv_wr_opcode opcode, const RemoteMemory& word, const Operands& operands,
                      bool for_kernel);
  // A message and what it needs.
  struct Outgoing {
    Message message;
    std::vector<std::byte> payload;
    RailKeys rkeys{};               // of an offer
    std::span<std::byte> packed{};  // where the array goes first, if it does
    std::optional<Seal> seal{};     // of the array; to be put behind the payload
  };
  Seal seal_of(const Memory& memory, const Deadline& until) const;  // peer_checks.cpp, as the next
  static void put_seal(Outgoing& outgoing);
  Transferring receive_sealed(const Memory& into, std::uint32_t tag);
  Transferring post_receive(const Memory& into, std::uint32_t tag,
                            std::shared_ptr<std::optional<Seal>> seal);
  // What is sent instead of a range where it lies: its bytes, or a packed copy.
  enum class Packing { none, buffer, eager };
  Packing packing(const Memory& from, const VerbsPath& path) const;
  Outgoing wrap(const Memory& from, std::uint32_t tag, Packing packing, Transfer& transfer) const;
  Transferring make_message_transfer(const Memory& memory, bool staged,
                                     const VerbsPath& path) const;
  void post(const Transferring& transfer, Outgoing&& outgoing, VerbsPath& path) const;
  void post_later(const Transferring& transfer, Outgoing&& outgoing, StagedWork&& work);
  static void wait_for_program(const Memory& memory, const Deadline& deadline);
  static void wait_for_program(std::span<const Pair> pairs, const Deadline& deadline);
  void wait_for_stream(const TransferOptions& options, const Deadline& deadline) const;
  [[noreturn]] void throw_lost(Effect effect) const;

  const Host host_;
  const std::shared_ptr<Poller> poller_;
  const std::shared_ptr<RouteBook> book_;
  const Routes routes_;
  const unsigned process_generation_;  // of the process (fork)
  Identity identity_;
  std::shared_ptr<PathGroup> group_;
  std::shared_ptr<Staging> staging_;
  std::vector<std::shared_ptr<VerbsPath>> paths_;  // by rail
  bool global_atomics_ = false;
  std::optional<Invitation> invitation_;  // progress thread only
  std::unique_ptr<Neighbour> neighbour_;
  Causes falls_;                       // from p2p to a device
  std::atomic<int> copies_queued_{0};  // of host memory
  const std::shared_ptr<GpuCopies> gpu_copies_ = std::make_shared<GpuCopies>(poller_, host_.look);
  std::shared_ptr<CheckLine> check_line_;  // null: transfers are not checked
  std::atomic<int> asked_sums_{0};         // questions of the peer under way
  std::atomic<int> refused_sums_{0};       // of all it asked, as it had no right to that memory
  std::atomic<State> state_{State::connecting};
  std::atomic<std::uint64_t> given_up_{0};  // transfers under way then
  std::atomic<bool> left_{false};           // lost, and all that was pending has ended
  Questions<Inquiry::Answer> lookups_;
  Questions<DirectAnswer> direct_questions_;
  mutable Mutex<Rank::peer> mutex_;  // guards the next three
  std::string why_lost_;
  std::string lost_reason_;                // the same, as a sentence
  std::weak_ptr<ipc::Visitor> dismissed_;  // who came on the invitation, once lost
};

}  // namespace zerohop::engine
